"""Turns about notes: modes, passages before the first call, citations, and partial answers."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agenticx import ToolContext, open_hub, tool
from agenticx.knowledge import IndexState, Vault, VaultIndex, VaultRegistry
from agenticx.knowledge.passages import CITING, number_url_passage, numbered_passages, shown_passage
from agenticx.llms import ScriptedModel
from agenticx.sessions import TurnRequest, export_markdown, fork, read_messages
from agenticx.settings import load_settings
from agenticx.testing import call, outline
from agenticx.tools import ToolState
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio

LEASE = "# Lease\n\nIt ends in May 2027.\n"


class Talk:
    """A hub with a vault of two notes, one session and a scripted model."""

    def __init__(
        self, folder: Path, *script: Any, tools: Any = None, window: int | None = None, **settings_given: Any
    ) -> None:
        self.home, self.notes = folder / "home", folder / "Notes"
        self.notes.mkdir()
        (self.notes / "Lease.md").write_text(LEASE)
        (self.notes / "Heron.md").write_text("# Heron\n\nThe budget is 40,000 EUR.\n")
        VaultRegistry(self.home).add(self.notes)
        self.model = ScriptedModel(script, context_window=window)
        settings = load_settings({"home": self.home, **settings_given}, environ={})
        self.opened = open_hub("memory://", model=self.model, workspace=folder, settings=settings, tools=tools)

    async def __aenter__(self) -> Talk:
        self.hub = await self.opened.__aenter__()
        self.session = await self.hub.create(name="Notes")
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.opened.__aexit__(*exc)

    async def turn(self, text: str, **options: Any) -> list[Any]:
        submission = await self.hub.submit(self.session.id, TurnRequest(input=text, **options))
        events: list[Any] = []
        async for item in self.hub.follow(self.session.id, after=submission.after_seq):
            events.append(item.event)
            if item.event.terminal:
                break
        return events

    def sent(self, index: int) -> list[Any]:
        return list(self.model.requests[index].messages)


async def test_a_question_about_notes_gets_passages_first_and_its_citations_before_the_end(tmp_path: Path) -> None:
    async with Talk(tmp_path, "It ends in May 2027 [^1]. Nothing else is known [^9].") as talk:
        events = await talk.turn("What do my notes say about the lease?")

    assert outline(events, state=True) == [
        "turn_started",
        "round_start",
        "state:planning",
        "state:responding",
        "token",
        "citation",
        "state:done",
        "final",
    ]
    started, citation = events[0].data, next(event.data for event in events if event.type == "citation")
    assert (started["mode"], started["mode_reason"]) == ("vault", "it asks about your notes")
    message_id = events[-1].data["message_id"]
    assert citation == citation | {
        "message_id": message_id,
        "marker": 1,
        "status": "verified",
        "vault": "Notes",
        "path": "Lease.md",
        "heading": "Lease",
        "line_start": 1,
        "line_end": 3,
        "quote": "It ends in May 2027.",
        "quote_line": 3,
    }
    _, notes, raw = talk.sent(0)
    assert raw.content == "What do my notes say about the lease?"
    assert notes.sources[0] == "Lease.md"
    assert "[passage 1: Lease.md, Lease, lines 1-3, boundary " in notes.content


async def test_named_notes_are_pinned_whole_and_what_was_given_stays_where_it_was(tmp_path: Path) -> None:
    async with Talk(tmp_path, "One.", "Two.", "Three.") as talk:
        await talk.turn("Compare [[Lease]] and [[Nowhere]]", mode="agent")
        await talk.turn("And [[Lease]] again, with [[Heron]]", mode="agent")
        await talk.turn("Hello!", mode="chat")

    first, second, third = (talk.sent(index) for index in range(3))
    assert second[: len(first)] == first
    assert third[: len(second)] == second
    assert "[[Nowhere]] is the name of no note." in first[1].content
    again = second[-2].content
    assert "You have these already: passage 1." in again
    assert "\nIt ends in May" not in again
    assert "The budget is 40,000 EUR." in again
    assert third[-2].content.startswith("[notes]\n\nThe user is chatting")


async def test_passages_without_room_are_not_said_to_be_missing(tmp_path: Path) -> None:
    async with Talk(tmp_path, "One.", window=4_000) as talk:
        (talk.notes / "Zebra.md").write_text("```\nzebra\n" + "code\n" * 1_400 + "```\n")
        await talk.turn("What do my notes say about the zebra?")

    content = talk.sent(0)[-2].content
    assert "Left out for want of room: Zebra.md:1" in content
    assert ("found nothing" in content, "has no room here" in content) == (False, True)


@pytest.fixture
def half_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each run of an index end with its first two notes, the latest, and go on without end.

    A search answers as soon as these are indexed and its time is over.
    """
    refresh, refresh_vault, has_two = VaultIndex.refresh, Vault.refresh, threading.Event()

    def refresh_in_part(self: VaultIndex, *, stopped: Any, report: Any) -> IndexState:
        state = refresh(self, stopped=lambda: True, report=report)
        has_two.set()
        while not stopped():
            time.sleep(0.01)
        return state

    async def refresh_until_two(self: Vault, **options: Any) -> None:
        await refresh_vault(self, **options)
        assert await asyncio.to_thread(has_two.wait, PATIENCE)

    monkeypatch.setattr("agenticx.knowledge.index._BATCH_NOTES", 2)
    monkeypatch.setattr("agenticx.knowledge.vaults._SEARCH_SECONDS", 0.15)
    monkeypatch.setattr(VaultIndex, "refresh", refresh_in_part)
    monkeypatch.setattr(Vault, "refresh", refresh_until_two)


@pytest.mark.usefixtures("half_indexed")
async def test_an_index_that_is_not_finished_is_said_and_its_other_notes_are_read_from_the_disk(tmp_path: Path) -> None:
    calls = [
        call("note_read", {"path": "Lease.md"}),
        call("note_read", {"path": "todo"}),
        call("note_read", {"path": "none"}),
        call("note_links", {"path": "Heron"}),
        call("note_list"),
        call("note_search", {"query": "penguin"}),
    ]
    async with Talk(tmp_path, *[[one] for one in calls], "Done.", window=100_000) as talk:
        for name in ("todo.txt", "Sub/todo.md", "new1.md", "new2.md"):
            (talk.notes / name).parent.mkdir(exist_ok=True)
            (talk.notes / name).write_text(f"In {name} is a zebra.")
        for name in ("Lease.md", "Heron.md", "todo.txt", "Sub/todo.md"):
            os.utime(talk.notes / name, (1, 1))
        events = await talk.turn("What do my notes say about [[Heron]] and the penguin?")

    notes = talk.sent(0)[-2].content
    assert "Of the vault 'Notes', 2 of 6 notes were searched so far" in notes
    assert ("The budget is 40,000 EUR." in notes, "found nothing" in notes) == (True, False)
    lease, todo, none, links, listed, found = [event.data["result"] for event in events if event.type == "tool_result"]
    assert "It ends in May 2027." in lease
    assert "In todo.txt is a zebra" in todo
    assert "there is no note 'none'; 2 of 6 notes are indexed so far" in none
    so_far = "[2 of 6 notes are indexed so far; this is from them alone]"
    assert links == f"Links of Heron.md:\nNotes that link to it:\n{so_far}"
    assert listed == f"new1.md: new1\nnew2.md: new2\n{so_far}"
    assert ("Nothing was found so far" in found, so_far in found) == (True, True)
    progress = {event.data["output"] for event in events if event.type == "tool_progress"}
    assert progress == {"2 of 6 notes so far\n"}


async def test_a_missing_folder_is_said_wherever_its_notes_are_asked_for(tmp_path: Path) -> None:
    calls = [
        call("note_read", {"path": "Lease.md"}),
        call("note_read", {"path": "None.md"}),
        call("note_links", {"path": "Lease"}),
        call("note_list"),
        call("note_search", {"query": "lease"}),
    ]
    async with Talk(tmp_path, "One.", *[[one] for one in calls], "Done.", window=100_000) as talk:
        await talk.turn("What do my notes say about the lease?")
        talk.notes.rename(tmp_path / "away")
        events = await talk.turn("What do my notes say about [[Heron]] and [[None]]?")

    notes = talk.sent(1)[-2].content
    assert f"cannot be searched now (the vault's folder '{talk.notes}' is missing" in notes
    assert ("no note" in notes, "found nothing" in notes, notes.count("is missing")) == (False, False, 1)
    results = [event.data["result"] for event in events if event.type == "tool_result"]
    assert ["is missing" in result for result in results] == [True] * 5
    assert not any("there is no note" in result or "Nothing was found" in result for result in results)


async def test_a_vault_without_a_usable_index_is_said_and_the_others_are_searched(tmp_path: Path) -> None:
    calls = [call("note_search", {"query": "lease", "vault": vault}) for vault in ("Notes", "Other")]
    async with Talk(tmp_path, *[[one] for one in calls], "Done.", window=100_000) as talk:
        (tmp_path / "Other").mkdir()
        (tmp_path / "Other/Flat.md").write_text("The lease of the flat.")
        VaultRegistry(talk.home).add(tmp_path / "Other")
        registry = VaultRegistry(talk.home)
        registry.index_file(registry.find("Notes")).mkdir()
        events = await talk.turn("What do my notes say about the lease?")

    notes = talk.sent(0)[-2].content
    assert "The notes of 'Notes' cannot be searched now (the index of the vault 'Notes' cannot be read" in notes
    assert "The lease of the flat." in notes
    broken, works = [event.data for event in events if event.type == "tool_result"]
    assert broken["outcome"] == "error"
    assert "remove what is there: it is made anew" in broken["result"]
    assert "The lease of the flat." in works["result"]


async def test_passages_of_several_vaults_are_given_by_their_rank(tmp_path: Path) -> None:
    async with Talk(tmp_path, "One.") as talk:
        for vault in ("Apples", "Zoo"):
            (tmp_path / vault).mkdir()
            VaultRegistry(talk.home).add(tmp_path / vault)
        for number in range(9):
            (tmp_path / "Apples" / f"{number}.md").write_text(f"An apple {number} that costs 2 EUR and weighs much.")
            (tmp_path / "Zoo" / f"{number}.md").write_text(f"A penguin {number}.")
        (tmp_path / "Zoo/Penguin.md").write_text("# Penguin\n\nThe penguin eats fish and costs 900 EUR.\n")
        await talk.turn("What do my notes say about what a penguin costs in EUR?")

    places = re.findall(r"\[passage (\d+): (\w+): (\w+)\.md", talk.sent(0)[-2].content)
    assert [int(number) for number, _, _ in places] == list(range(1, 9))
    assert ("Zoo", "Penguin") in [place[1:] for place in places[:3]]
    assert {vault for _, vault, _ in places} == {"Apples", "Notes", "Zoo"}


async def test_all_notes_of_a_name_are_pinned_and_each_is_read_by_its_path(tmp_path: Path) -> None:
    calls = [[call("note_read", {"path": path})] for path in ("todo.md", "todo.txt", "todo")]
    async with Talk(tmp_path, *calls, "Done.") as talk:
        (talk.notes / "todo.md").write_text("Buy milk.\n")
        (talk.notes / "todo.txt").write_text("Buy bread.\n")
        events = await talk.turn("Compare [[todo]]", mode="agent")

    (pinned,) = [message.content for message in talk.sent(0) if "is the name of 2 notes" in message.content]
    assert ("Buy milk." in pinned, "Buy bread." in pinned, "cannot be read" in pinned) == (True, True, False)
    first, second, both = [event.data for event in events if event.type == "tool_result"]
    assert ("Buy milk." in first["result"], "Buy bread." in second["result"]) == (True, True)
    assert both["outcome"] == "error"
    assert "give the path of one: 'todo.md', 'todo.txt'" in both["result"]


async def test_out_of_calls_a_turn_about_notes_says_what_was_found(tmp_path: Path) -> None:
    calls = [[call("note_search", {"query": f"lease {number}"})] for number in range(5)]
    async with Talk(tmp_path, *calls, "It ends in May 2027 [^1].") as talk:
        events = await talk.turn("When does it end?", mode="vault")

    assert [event.data for event in events if event.type == "round_start"][-1] == {"round": 5, "max_rounds": 5}
    assert [event.data["status"] for event in events if event.type == "citation"] == ["verified"]
    assert (events[-1].type, events[-1].data["reason"]) == ("final", "partial")
    assert talk.model.requests[-1].tools == ()


async def test_a_note_that_changed_since_it_was_read_is_said(tmp_path: Path) -> None:
    async with Talk(tmp_path, [call("bash_exec", {"command": "true"})], "It ends in May 2027 [^1].") as talk:
        note = talk.notes / "Lease.md"
        await talk.hub.change(talk.session.id, {"permission_mode": "plan"})
        submission = await talk.hub.submit(talk.session.id, TurnRequest(input="Read [[Lease]]", mode="vault"))
        events: list[Any] = []
        async for item in talk.hub.follow(talk.session.id, after=submission.after_seq):
            events.append(item.event)
            if item.event.type == "tool_result":
                note.write_text(LEASE.replace("2027", "2028"))
            if item.event.terminal:
                break
    (citation,) = [event.data for event in events if event.type == "citation"]
    assert (citation["status"], citation["quote"], citation["line_start"]) == ("changed", "It ends in May 2027.", 1)


async def test_a_transcript_an_export_and_a_fork_have_the_citations_of_an_answer(tmp_path: Path) -> None:
    answer = "It ends in May 2027 [^1]. It ends in May 2028 [^1]. The budget is 40,000 EUR [^2]."
    async with Talk(tmp_path, answer, "Thanks.") as talk:
        cited = [event.data for event in await talk.turn("Read [[Lease]] and [[Heron]]") if event.type == "citation"]
        await talk.turn("Thanks")
        store = talk.hub.store
        forked = await fork(store, talk.session.id, now="2026-01-01")
        for record in (talk.session, forked):
            messages = await read_messages(store.log, record.id)
            assert ["citations" in message for message in messages] == [False, True, False, False]
            assert [{**row, "message_id": messages[1]["message_id"]} for row in messages[1]["citations"]] == cited
            assert (
                f"\n\n{answer}\n\n[^1]: Lease.md:3 — verified; Lease.md:1 — unsupported\n"
                "[^2]: Heron.md:3 — verified\n\n## You\n"
            ) in await export_markdown(store.log, record)


async def test_without_a_vault_a_turn_says_no_mode(tmp_path: Path) -> None:
    async with Talk(tmp_path, "Nothing.") as talk:
        events = await talk.turn("What do my notes say?", vaults=())

    assert "mode" not in events[0].data


@tool(risk="read")
async def page_read(context: ToolContext) -> str:
    """Read a page."""
    number, passage = number_url_passage(context.state, "https://example.org/rent", "The average is 1,100 EUR.")
    return shown_passage(number, passage)


async def test_without_a_vault_what_a_tool_read_elsewhere_is_cited_with_its_url(tmp_path: Path) -> None:
    async with Talk(tmp_path, call("page_read"), "It is 1,100 EUR [^1].", tools=[page_read]) as talk:
        events = await talk.turn("What is the average?", vaults=())

    (citation,) = [event.data for event in events if event.type == "citation"]
    assert (citation["status"], citation["url"]) == ("verified", "https://example.org/rent")
    assert citation.keys().isdisjoint({"vault", "path"})


async def test_a_chosen_mode_vault_has_only_the_tools_that_the_settings_enable(tmp_path: Path) -> None:
    enabled: dict[str, Any] = {"autonomous_agent_enabled_tool_ids": ["note_read", "nothing"]}
    async with Talk(tmp_path, "One.", "Two.", **enabled) as talk:
        await talk.turn("When does it end?", mode="vault")
        await talk.turn("What do my notes say about the lease?")

    forced, detected = (request.tools for request in talk.model.requests)
    assert [schema.name for schema in forced] == ["note_read"]
    assert len(detected) > 10


@pytest.mark.ci_lane
async def test_the_notes_of_all_turns_fill_at_most_their_share_of_the_window(tmp_path: Path) -> None:
    async with Talk(tmp_path, *["Ok."] * 9) as talk:
        for number in range(8):
            (talk.notes / f"Pin{number}.md").write_text(
                f"# Pin {number}\n\n" + f"word{number} lorem ipsum dolor\n" * 700
            )
            await talk.turn(f"What is in [[Pin{number}]]?", mode="agent")
        await talk.turn("Go on.", mode="agent")

    for number in range(8):
        sent = talk.sent(number)
        notes = [message.content for message in sent if message.content.startswith("[notes]")]
        assert sum(map(len, notes)) < 32_000 * 3 * 0.4 + 1_000
        assert f"word{number} lorem" in notes[-1]  # what a person names makes room for itself
        assert sum(len(message.content) for message in sent) < 48_000
    assert "The text of notes was left out here to save room" in talk.sent(8)[1].content


async def test_a_message_to_a_running_turn_pins_the_notes_that_it_names(tmp_path: Path) -> None:
    @tool(risk="read")
    async def wait() -> str:
        """Wait."""
        await talk.hub.submit(
            talk.session.id, TurnRequest(input="Look at [[Lease]] and [[None]] too", when_busy="steer")
        )
        return "waited"

    async with Talk(tmp_path, call("wait"), "Yes.", tools=[wait]) as talk:
        await talk.turn("Work.", mode="agent")

    *_, notes, steered = talk.sent(1)
    assert "It ends in May 2027." in notes.content
    assert notes.content.endswith("[[None]] is the name of no note.\n\n" + CITING)
    assert (steered.content, notes.sources) == ("Look at [[Lease]] and [[None]] too", ("Lease.md",))


NOTE_TEXT = "# Numbers\n\nThe first is 17.\n"


@tool(risk="read")
async def pages_read(context: ToolContext) -> str:
    """Read 400 pages."""
    for number in range(400):
        number_url_passage(context.state, f"https://example.org/{number}", f"{'long ' * 60}17 {number}")
    return f"{sum(row['text'] != '' for row in context.state.passages)} are kept"


async def test_a_passage_whose_text_is_no_longer_kept_is_compared_with_its_note(tmp_path: Path) -> None:
    script = [call("note_read", {"path": "Numbers"})], [call("pages_read")], "Read.", "17 [^1].", "17 [^1]. 17 [^2]."
    script = *script, [call("note_read", {"path": "Numbers"})], "Read."
    async with Talk(tmp_path, *script, tools=[pages_read]) as talk:
        note = talk.notes / "Numbers.md"
        note.write_text(NOTE_TEXT)
        await talk.turn("Read it", mode="agent")
        assert talk.sent(2)[-1].content == "300 are kept"
        note.write_text(f"new\n\n{NOTE_TEXT}")
        (moved,) = [event.data for event in await talk.turn("Again", mode="agent") if event.type == "citation"]
        note.write_text(NOTE_TEXT.replace("17", "170"))
        changed, of_page = [event.data for event in await talk.turn("Again", mode="agent") if event.type == "citation"]
        await talk.turn("Read it again", mode="agent")

    assert "Outdated: passage 1; Numbers.md has changed." in "\n".join(message.content for message in talk.sent(6))
    assert (moved["status"], moved["quote"], moved["quote_line"]) == ("verified", "The first is 17.", 5)
    assert (changed["status"], changed["quote"], changed["line_start"]) == ("changed", "The first is 17.", 1)
    assert (of_page["status"], of_page["quote"] != "") == ("changed", True)


async def test_texts_of_passages_that_are_read_again_are_not_kept_without_limit() -> None:
    state = ToolState()
    for _ in range(2):
        for number in range(350):
            number_url_passage(state, f"https://example.org/{number}", f"Page {number}")

    assert len(state.passages) == 350
    assert sum(row["text"] != "" for row in state.passages) == 300
    assert numbered_passages(state)[1].passage.text == "Page 0"


async def test_a_citation_of_a_vault_that_was_removed_has_its_name(tmp_path: Path) -> None:
    async with Talk(tmp_path, "It ends in May 2027 [^1].", "It ends in May 2027 [^1].") as talk:
        await talk.turn("What do my notes say about the lease?")
        registry = VaultRegistry(talk.home)
        registry.remove(registry.find("Notes"))
        (citation,) = [event.data for event in await talk.turn("Again") if event.type == "citation"]

    assert (citation["status"], citation["vault"], citation["path"]) == ("changed", "Notes", "Lease.md")


async def test_a_passage_is_outdated_if_its_line_has_become_another(tmp_path: Path) -> None:
    async with Talk(tmp_path, [call("note_read", {"path": "Rent"})], "Done.", "Done.") as talk:
        (talk.notes / "Rent.md").write_text("The rent is 12")
        await talk.turn("Read it", mode="agent")
        (talk.notes / "Rent.md").write_text("The rent is 1200 euros")
        await talk.turn("Read it again", mode="agent")

    assert "Outdated: passage 1; Rent.md has changed." in talk.sent(2)[-2].content


async def test_a_passage_that_begins_within_a_line_is_compared_from_there(tmp_path: Path) -> None:
    read = call("note_read", {"path": "Rent", "line": 2, "column": 5})
    async with Talk(tmp_path, [read], "The rent is 12 [^1].", "The rent is 12 [^1].", "The rent is 12 [^1].") as talk:
        note = talk.notes / "Rent.md"
        found: list[tuple[str, int]] = []
        for text in ("# Rent\nxyz rent is 12\nno more", "# Rent\n\nxyz rent is 12\nno more", "# Rent\nxy rent is 12\n"):
            note.write_text(text)
            events = await talk.turn("Read it", mode="agent")
            found += [(event.data["status"], event.data["line_start"]) for event in events if event.type == "citation"]

    assert found == [("verified", 2), ("verified", 3), ("changed", 2)]


async def test_a_later_turn_names_the_passages_whose_notes_have_changed_or_are_gone(tmp_path: Path) -> None:
    async with Talk(tmp_path, "One.", "Two.", "Three.") as talk:
        await talk.turn("What do my notes say about the lease and the budget?")
        (talk.notes / "Lease.md").write_text("# Lease\n\nIt ends in 2030.\n")
        (talk.notes / "Heron.md").unlink()
        await talk.turn("Hello!", mode="chat")
        await talk.turn("Work on it.", mode="agent")

    told = talk.sent(1)[-2].content
    assert "Heron.md is gone." in told
    assert "Lease.md has changed." in told
    assert talk.sent(2)[-2].role == "assistant"  # it is said once


async def test_a_long_note_is_pinned_whole_where_the_window_has_room_and_a_name_means_all_of_that_name(
    tmp_path: Path,
) -> None:
    async with Talk(tmp_path, "Ok.", window=400_000) as talk:
        text = "\n".join(f"line {number} of the long note" for number in range(2_500))
        (talk.notes / "Long.md").write_text(text)
        (talk.notes / "Sub").mkdir()
        (talk.notes / "Sub/Lease.md").write_text("Another lease.\n")
        await talk.turn("Sum up [[Long]] and [[Lease]]", mode="agent")

    notes = talk.sent(0)[-2].content
    assert text in notes
    assert "[[Lease]] is the name of 2 notes; all of them are here." in notes
    assert "Another lease." in notes


async def test_a_turn_about_notes_whose_folder_is_missing_is_one_of_mode_agent(tmp_path: Path) -> None:
    async with Talk(tmp_path, "I cannot.") as talk:
        talk.notes.rename(tmp_path / "Elsewhere")
        events = await talk.turn("What do my notes say about the lease?")

    assert events[0].data["mode"] == "agent"
    assert events[0].data["mode_reason"].endswith("but the notes of 'Notes' cannot be read")


async def test_a_session_whose_vault_is_not_there_any_more_says_so_wherever_its_notes_are_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Talk(tmp_path, "One.", "Two.", "Three.", "Four.") as talk:
        (vault,) = VaultRegistry(talk.home).list()
        talk.session = await talk.hub.create(name="Of one vault", vaults=[vault.id])
        VaultRegistry(talk.home).remove(vault)
        asked, named, other = [
            await talk.turn(text)
            for text in ("What do my notes say about the lease?", "Sum up [[Lease]]", "Say what 2 + 2 is")
        ]
        chosen = await talk.turn("Hello", mode="vault", vaults=())

    assert asked[0].data["mode"] == "agent"
    assert asked[0].data["mode_reason"].endswith(f"but the notes of '{vault.id}' cannot be read")
    sentence = f"The notes of '{vault.id}' cannot be searched now (there is no vault with this id any more)"
    assert [sentence in talk.sent(index)[-2].content for index in (0, 1)] == [True, True]
    assert named[-1].type == other[-1].type == "final"
    assert caplog.text.count("vaults of the session are not here") == 3
    assert chosen[0].data["mode_reason"] == "the user chose it, but there is no vault"


async def test_an_index_that_was_made_anew_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Talk(tmp_path, "Ok.", "Ok.") as talk:
        registry = VaultRegistry(talk.home)
        file = registry.index_file(registry.find("Notes"))
        file.write_bytes(b"garbage!" * 2_000)
        for _ in range(2):
            await talk.turn("What do my notes say about the lease?")

    said = [record for record in caplog.records if "was damaged or old, and was made anew" in record.getMessage()]
    assert len([record for record in said if record.levelname == "WARNING"]) == 1
