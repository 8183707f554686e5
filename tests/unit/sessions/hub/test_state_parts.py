"""A change of a session's state has the parts alone that are new or other, and all are loaded."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from agenticx.permissions import Rule
from agenticx.runtime import Option, Session
from agenticx.sessions import SessionRecord, SessionState, StateChange
from agenticx.sessions.hub.state_tracker import StateTracker, load_session
from agenticx.sessions.log.tool_state import encode_state
from agenticx.tools.artifacts import files as artifact_files
from agenticx.tools.artifacts.files import Artifacts

pytestmark = pytest.mark.anyio

RECORD = SessionRecord(workspace="/tmp", created_at="2026-01-01T00:00:00.000Z")
PATHS = ["a.html", "b.html", "c/d.css"]


class Stored:
    """A session beside its stored parts, which get its changes as a store does."""

    def __init__(self) -> None:
        self.session = load_session(RECORD, SessionState())
        self.tracker = StateTracker(self.session)
        self.parts = dict[str, str]()

    def look(self, *, files_only: bool = False) -> StateChange | None:
        return self.tracker.pending_files() if files_only else self.tracker.pending_change()

    def store(self, change: StateChange) -> None:
        for name in change.removed_parts:
            del self.parts[name]
        self.parts |= change.parts
        self.tracker.mark_stored(change)

    def loaded(self) -> Session:
        return load_session(RECORD, SessionState(parts=dict(self.parts)), self.session.artifacts.contents)


async def change_anything(session: Session, rng: random.Random) -> None:
    """Change the state as tools, models, users and applications do."""
    state, number = session.state, rng.randrange(1000)
    names = [*session.state.context_variables, *"xyz"]
    changes: dict[str, Callable[[], object]] = {
        "todos": lambda: state.todos.append({"text": f"{number}", "status": "pending"}),
        "todo": lambda: [todo.update(status="done") for todo in state.todos[:1]],
        "no todos": state.todos.clear,
        "note": lambda: state.scratchpad.update({rng.choice("abc\ud800"): f"{number}"}),
        "no note": lambda: state.scratchpad.pop(rng.choice("abc"), None),
        "seen": lambda: state.files.update({f"/tmp/\udc80 {rng.randrange(5)}": (number, 1)}),
        "variable": lambda: state.context_variables.update({rng.choice(names): [number]}),
        "variable in place": lambda: [value.append(1) for value in state.context_variables.values()],
        "other order": lambda: state.context_variables.update(
            {(name := next(iter(names))): state.context_variables.pop(name, [0])}
        ),
        "no JSON": lambda: state.context_variables.update({rng.choice("xyz"): [object()], 5: [1]}),  # type: ignore[dict-item]
        "passage": lambda: state.passages.append({"path": f"{number}.md"}),
        "outdated": lambda: [row.update(outdated=True) for row in state.passages[:1]],
        "sources": lambda: state.sources.append(f"{number}"),
        "rules": lambda: session.rules.append(Rule(decision="allow", tool=f"tool_{number}", scope="session")),
        "size": lambda: setattr(session, "size_at_failed_compaction", rng.choice([None, (number, 2)])),
        "reserved": lambda: session.artifacts.reserve(rng.choice(PATHS)),
        "rewound": lambda: session.artifacts.return_to({path: rng.randrange(1, 9) for path in rng.sample(PATHS, 2)}),
        "answered": lambda: [setattr(option, "text", f"{number}") for option in session.options[-1:]],
        "picked": lambda: [session.artifacts.take_over(option.artifacts) for option in session.options[-1:]],
        "nothing": lambda: None,
    }
    rng.choice(list(changes.values()))()
    branches = [session.artifacts, *(option.artifacts for option in session.options)]
    if rng.random() < 0.5:
        await rng.choice(branches).write(rng.choice(PATHS), b"%d" % number)
    if rng.random() < 0.1:
        branch = session.artifacts.branch()
        session.options.append(Option(session.next_option, "demo", f"turn_{number}", "turn_0", branch))
        session.next_option, session.is_option_due = session.next_option + 1, rng.random() < 0.5


@pytest.mark.cases(quick=30, full=500)
async def test_stored_changes_make_the_state_as_it_is(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact_files, "MAX_OLD_REVISIONS", 5)
    stored = Stored()
    for _ in range(60):
        for _ in range(rng.randrange(4)):
            await change_anything(stored.session, rng)
        change = stored.look(files_only=rng.random() < 0.3)
        if change is not None and rng.random() < 0.3:  # more happens while the change is being stored
            await change_anything(stored.session, rng)
        if rng.random() < 0.1:  # the write fails
            stored.tracker.reset_to(SessionState(stored.session.messages, dict(stored.parts)))
        elif change is not None:
            stored.store(change)
    if (change := stored.look()) is not None:
        stored.store(change)
    assert stored.look() is None
    now = encode_state(stored.session, (0, 0))
    assert stored.parts == now
    loaded = stored.loaded()
    assert encode_state(loaded, (0, 0)) == now
    before, after = stored.session.state, loaded.state
    assert (list(after.scratchpad), list(after.files)) == (list(before.scratchpad), list(before.files))
    assert after.passages == before.passages


@pytest.mark.parametrize("count", [2, 400])
async def test_a_new_revision_is_stored_alone(count: int) -> None:
    stored = Stored()
    session = stored.session
    for number in range(count):
        await session.artifacts.write("page.html", b"%d" % number)
        session.state.files[f"/tmp/{number}"] = (number, 1)
    session.options = [Option(number, "demo", "turn_1", "turn_0", Artifacts()) for number in range(1, count)]
    change = stored.look()
    assert change is not None
    stored.store(change)
    await session.artifacts.write("page.html", b"new")
    session.state.files["/tmp/new"] = (1, 1)
    session.options[0].text = "The answer."
    change = stored.look()
    assert change is not None
    assert sorted(change.parts) == [
        'artifacts:"page.html"',
        'files:"/tmp/new"',
        "options:1",
        f'revisions:["page.html",{count}]',
        f'revisions:["page.html",{count + 1}]',
    ]
    assert change.removed_parts == []
