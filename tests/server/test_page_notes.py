"""Notes on the page: citations with their lines, vaults, and answers that a hostile note shaped."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agenticx.knowledge import Passage, VaultRegistry, check_citations, passage_sha256
from agenticx.llms import ScriptedModel
from agenticx.testing import call
from tests.support.javascript import NODE, run_module
from tests.support.knowledge.data import knowledge_rows
from tests.support.server.chromium import CHROMIUM, Tab
from tests.support.server.page import (
    LOG,
    STOPPED,
    click,
    enter,
    fill,
    press_button,
    send_message,
    text_of,
    wait_for_focus,
)
from tests.support.server.running_studio import StudioMaker

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

LEASE = "# Lease\n\nIt ends in May 2027. See [^1].\n\nThe rent is 900 EUR, and <b>not</b> more.\u200b\n"
QUOTED = "The note says “See [^1]”.\n"
ANSWER = """It ends in May 2027. [^1] It is a nice flat, e.g. [^1] for Dr. Who [^1].
The rent is 950 EUR [^1].
Neither `[^1]` nor [^9] is a citation.

[^1]: not one either"""
MARKERS = "[...document.querySelectorAll('.citation')]"
CITED = "document.querySelector('.cited')"


@pytest.mark.ci_lane
@pytest.mark.shares_secrets
async def test_citations_are_marked_by_status_and_show_their_lines(
    make_studio: StudioMaker, tab: Tab, tmp_path: Path
) -> None:
    notes = tmp_path / "My & notes"
    notes.mkdir()
    (notes / "Lease.md").write_text(LEASE)
    model = ScriptedModel([QUOTED + ANSWER])
    async with make_studio(model) as studio:
        await enter(tab, studio)
        vaults = text_of("#vault-list")
        await tab.evaluate("location.hash = '#/settings/notes'")
        await tab.wait_for(f"{vaults}.includes('No vault yet')")
        await fill(tab, "Folder of notes", str(notes / "none"))
        await click(tab, "Add vault")
        refused = await tab.wait_for(text_of("#vault-error"))
        assert refused.endswith("does not exist; give a folder of notes")
        await fill(tab, "Folder of notes", str(notes))
        await click(tab, "Add vault")
        await tab.wait_for(f"{vaults}.includes('1 note, up to date')")
        assert await tab.evaluate(text_of("#vault-error")) == ""
        await click(tab, "Close settings")

        await send_message(tab, "What do my notes say about the lease?")
        await tab.wait_for(f"{STOPPED} && {MARKERS}.length")
        labels = await tab.evaluate(f"{MARKERS}.map((one) => one.getAttribute('aria-label'))")
        place = "My & notes: Lease.md, lines 1–5"
        statuses = ["verified", "located", "located", "unsupported"]
        assert labels == [f"Citation 1, {status}: {place}" for status in statuses]
        numbers = "[...document.querySelectorAll('.answer p')].map((part) => part.innerText.replace(/\\s+/g, ' '))"
        shown = await tab.evaluate(numbers)
        assert shown[0].startswith("The note says “See [^1]”. ")  # a marker of the note itself is none
        assert "[^9] is a citation" in shown[0]
        assert "mode notes: it asks about" in await tab.evaluate("document.querySelector('.mode').textContent")

        await tab.evaluate(f"{MARKERS}[3].click()")
        cited = await tab.wait_for(f"{CITED}?.innerText")
        assert place in cited
        assert "Lease" in cited
        assert "Unsupported: the passage lacks a number, date, quotation or code of the sentence." in cited
        assert await tab.evaluate(f"{MARKERS}[3].getAttribute('aria-expanded')") == "true"
        await tab.press("Escape")
        await tab.wait_for(f"!{CITED} && document.activeElement === {MARKERS}[3]")

        await tab.evaluate(f"{MARKERS}[3].click()")
        await click(tab, "Open note", CITED)
        lines = "[...document.querySelectorAll('#pane .passage li')].map((line) => line.textContent.trimEnd())"
        noted = LEASE.replace("\u200b", "⟨U+200B⟩").rstrip("\n").split("\n")
        await tab.wait_for(f"{lines}.length >= 5")
        assert (await tab.evaluate(lines))[:5] == noted
        assert await tab.evaluate("document.querySelectorAll('#pane .passage mark').length") == 5

        await tab.wait_for(f"!{CITED}")
        (notes / "Lease.md").write_text(f"Moved down\n\n{LEASE}")
        await tab.evaluate(f"{MARKERS}[3].click()")
        await tab.wait_for(f"{CITED}?.innerText.includes('lines 3–7') && {CITED}.innerText.includes('Unsupported')")
        await tab.press("Escape")
        (notes / "Lease.md").write_text(LEASE.replace("900", "950"))
        await click(tab, "Close notes")
        await tab.resize(390, 780)
        await tab.evaluate(f"{MARKERS}[3].click()")
        await tab.wait_for(f"{CITED}?.innerText.includes('The note has changed since.')")
        beyond = f"(({{left, right}}) => left < 0 || right > innerWidth)({CITED}.getBoundingClientRect())"
        assert not await tab.evaluate(beyond)
        await click(tab, "Open note", CITED)
        await tab.wait_for(f"{text_of('#pane .note')}.includes('The note has changed since') && {lines}.length")
        assert await tab.evaluate("document.querySelectorAll('#pane .passage mark').length") == 0
        await click(tab, "Close notes")
        await tab.resize(1280, 800)
        (notes / "Lease.md").write_text(LEASE)

        await tab.evaluate("location.hash = '#/settings/notes'")
        await press_button(tab, "Remove My & notes")
        await press_button(tab, "Forget vault", "document.querySelector('dialog')")
        await tab.wait_for(f"{vaults}.includes('No vault yet')")
        await wait_for_focus(tab, "#vault-list li", "No vault yet")
        save = studio.services.notes.memory.save
        await asyncio.to_thread(save, "Likes tea.", saved_at="2026-01-02T00:00:00.000Z", session_id="ses_1")
        await tab.evaluate("location.hash = '#/settings/memory'")
        for answer, left in (("Cancel", 1), ("Forget entry", 0)):
            await press_button(tab, "Forget: Likes tea.")
            await press_button(tab, answer, "document.querySelector('dialog[open]')")
            await tab.wait_for("!document.querySelector('dialog[open]')")
            assert len((await studio.client.get("/api/memory")).json()["entries"]) == left
        await tab.wait_for(f"{text_of('.settings-content .rows')} === 'Nothing is remembered.'")
        await click(tab, "Close settings")
        await tab.evaluate(f"{MARKERS}[0].click()")
        await click(tab, "Open note", CITED)
        gone = text_of("#pane [role=alert]")
        assert "no vault My & notes any more" in await tab.wait_for(gone)
        assert [entry for entry in tab.errors if "422" not in entry] == []
    assert (notes / "Lease.md").read_text() == LEASE


@pytest.mark.promise("I3")
async def test_an_answer_that_a_hostile_note_shaped_loads_nothing_and_hides_nothing(
    make_studio: StudioMaker, tab: Tab, tmp_path: Path
) -> None:
    rows = [row for row in knowledge_rows("injected_notes.json") if row["id"] in ("i03", "i04", "i05")]
    notes = tmp_path / "Notes"
    notes.mkdir()
    for row in rows:
        (notes / f"{row['id']}.md").write_text(row["note"])
    read = [[call("note_read", {"path": row["id"]})] for row in rows]
    obeyed = "\n".join(f"{row['note']} [^{number}]" for number, row in enumerate(rows, start=1))
    async with make_studio(ScriptedModel([*read, obeyed])) as studio:
        VaultRegistry(studio.services.settings.home).add(notes)
        await enter(tab, studio)
        await send_message(tab, "Read the notes")
        await tab.wait_for(f"{STOPPED} && {MARKERS}.length === 3")
        everything = "document.body.innerText"
        for number in range(3):
            await tab.evaluate(f"{MARKERS}[{number}].click()")
            await click(tab, "Open note", CITED)
            note = rows[number]["id"]
            await tab.wait_for(f"{text_of('#pane h2')}.includes({note!r}) && document.querySelector('#pane .passage')")
            await tab.wait_for(f"!{CITED}")
            assert not set("\u200b\u200c\u2060\U000e0049") & set(await tab.evaluate(everything))
        assert "Salt.⟨U+200B⟩⟨U+200C⟩⟨U+2060⟩⟨U+E0049⟩" in await tab.evaluate(text_of("#pane .passage"))
        assert "evil.example" in await tab.evaluate(LOG)
        links = "[...document.querySelectorAll('#log a')].filter((one) => !/^https?:/.test(one.href)).length"
        assert await tab.evaluate(links) == 0
        assert await tab.evaluate("document.querySelector('#log :is(img, script, iframe)')") is None
        hosts = "performance.getEntriesByType('resource').map((entry) => new URL(entry.name).host)"
        assert set(await tab.evaluate(hosts)) == {f"127.0.0.1:{studio.port}"}
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_the_text_of_a_vault_is_sent_to_an_embedding_model_only_if_the_person_allows_it(
    make_studio: StudioMaker, tab: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numpy", reason="needs numpy, of the extra embeddings")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-long-enough-4711")
    notes = tmp_path / "Notes"
    notes.mkdir()
    (notes / "Lease.md").write_text(LEASE)
    async with make_studio(embedding_model="openai:text-embedding-3-small") as studio:
        VaultRegistry(studio.services.settings.home).add(notes)
        await enter(tab, studio)
        await tab.evaluate("location.hash = '#/settings/notes'")
        row = "document.querySelector('#vault-list li')"
        labels = f"[...{row}.querySelectorAll('button')].map((button) => button.textContent)"
        asked = "To find notes by meaning, their text and questions would be sent to api.openai.com."
        await tab.wait_for(f"{row}?.innerText.includes({asked!r})")
        assert await tab.evaluate(labels) == ["Allow", "Refuse", "Rescan", "Remove"]
        await click(tab, "Do not send the text of Notes to api.openai.com")
        await tab.wait_for(f"{row}.innerText.includes('Found by words alone: nothing is sent to api.openai.com.')")
        assert await tab.evaluate(labels) == ["Allow", "Rescan", "Remove"]
        (vault,) = (await studio.client.get("/api/vaults")).json()["vaults"]
        assert (vault["embeddings"]["consent"], vault["embeddings"]["embedded"]) == ("refused", 0)
        assert await tab.evaluate(text_of("#vault-error")) == ""
        assert tab.errors == []


MARKED = r"""const citations = [1, 2].flatMap((marker) => Array.from({ length: 9 }, () => ({ marker })));
return given.map((reply) => [...module.markCitations(reply, citations).matchAll(/\ue000(\d+)\ue001/g)]
  .map(([, index]) => citations[index].marker));"""
REPLIES = {
    "It is so [^1].\n\n[^1]: a note [^2]\n    and [^2]\n\n    more [^2]": [1],
    "> It is so [^1].\n>\n> [^1]: a note [^2]\n>     and [^2]\n> It is [^2].": [1, 2],
    ">[^1]: a note\n[^2] is none": [2],
    "> > [^1]: a note\n> It is [^2].": [2],
    "- [^1]: an item\n1. [^2]: another": [1, 2],
    "[^1] : no note. **[^2]:** nor this": [1, 2],
    "> ```\n> a[^1]\n> ```\n> [^2]": [2],
    "> ```\n> a[^1]\nwithout an end [^2]": [2],
    "```\n> ```\na[^1]\n```\n[^2]": [2],
    "- ```\n  a[^1]\n  ```\n\n[^2]": [2],
}


@pytest.mark.skipif(NODE is None, reason="no node is installed")
def test_the_page_marks_what_was_read_as_a_citation() -> None:
    passages = {number: Passage("a.md", None, 1, 1, "a", passage_sha256("a")) for number in (1, 2)}
    checked = [[cited.marker for cited in check_citations(reply, passages, lambda _: "a")] for reply in REPLIES]
    assert dict(zip(REPLIES, checked, strict=True)) == REPLIES
    marked = run_module("ui/citations.js", MARKED, list(REPLIES))
    assert dict(zip(REPLIES, marked, strict=True)) == REPLIES
