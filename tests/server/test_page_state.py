"""The state that the page keeps of a session: made from its events, however they arrive, and what the API says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agenticx import builtin_tools
from agenticx.llms import ChatModel, ScriptedModel
from agenticx.permissions import Rule
from agenticx.subagents import session_tools
from agenticx.testing import call, cut, hang, say, think, usage
from tests.support.javascript import NODE, run_module
from tests.support.server.chromium import CHROMIUM, Tab
from tests.support.server.conversations import ByAgent, log, messages, run_turn
from tests.support.server.running_studio import IN_A_FILE, RunningStudio, StudioMaker, note, until
from tests.support.teams.configured import PAIR, team_file
from tests.support.timeouts import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(NODE is None, reason="no node is installed")]

RECORDED = sorted((Path(__file__).parents[1] / "cli" / "recorded_sessions").glob("*.jsonl"))

CHECK = r"""
const { applyEvents, initialState } = module;
const fold = (events, state = initialState()) => applyEvents(state, events);
const text = (value) => JSON.stringify(value, (key, part) => part instanceof Map ? [...part] : part);
const fail = (what, at) => { throw new Error(`${what} at event ${at}`); };
const freeze = (value) => {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return;
  Object.freeze(value);
  Object.values(value).forEach(freeze);
};
/** Fail where the same content is a new object, which a view would draw again; the turn of the event may be one. */
const checkIdentity = (one, other, at, id, path = "") => {
  if (one === other || typeof one !== "object" || typeof other !== "object" || !one || !other) return;
  const isAbove = one.id === id || /^(\.turns|\.childTurns)?$/.test(path);
  if (!isAbove && !path.includes("._") && text(one) === text(other)) fail(`${path} is another object`, at);
  for (const key of Object.keys(one)) checkIdentity(one[key], other[key], at, id, `${path}.${key}`);
};
let seed = 7;
const random = (below) => (seed = (seed * 48271) % 2147483647) % below;
for (const events of given.logs) {
  events.forEach(freeze);
  const whole = text(fold(events));
  let state = initialState();
  events.forEach((event, at) => {
    freeze(state);
    const before = text(state);
    const next = fold([event], state);
    if (text(state) !== before) fail("the old state changed", at);
    checkIdentity(state, next, at, event.turn_id);
    state = next;
    if (text(fold(events.slice(0, at), state)) !== text(state)) fail("a repetition changed the state", at);
  });
  if (text(state) !== whole) fail("single events give another state", events.length);
  for (let round = 0; round < given.rounds; round += 1) {
    let split = initialState();
    for (let at = 0, to; at < events.length; at = to) split = fold(events.slice(at, to = at + 1 + random(20)), split);
    if (text(split) !== whole) fail("batches give another state", events.length);
  }
}
return null;
"""

SHOWN = r"""
const state = module.applyEvents(module.initialState(), given);
const open = state.requests.filter(({ answer }) => !answer);
const rows = (turn) => [["user", turn.message.text], ...items(turn), ...turn.notes.map((note) => ["note", note.type])];
const items = (turn) => turn.items.filter((item) => item.onPath).flatMap((item) => {
  if (item.kind === "turn") return /^option-/.test(item.agentId) ? [] : items(state.childTurns[item.id]);
  if (item.kind === "text") return item.text ? [["assistant", item.text]] : [];
  if (item.kind === "message") return [["user", item.text]];
  return item.kind === "call" && item.result !== null ? [["tool", item.result]] : [];
});
const mapped = (map, change) => Object.fromEntries(Object.entries(map).map(([key, value]) => [key, change(value)]));
const isMadeCall = ({ kind, outcome }) => kind === "call" && outcome !== "dropped" && outcome !== "stopped";
return {
  rows: state.turns.filter(({ onPath }) => onPath).flatMap(rows),
  outcomes: state.turns.map(({ status }) => status),
  open: open.map(({ id }) => id),
  confirms: open.filter(({ kind }) => kind === "confirm").map(({ id }) => id),
  queue: state.queue.map(({ messageId, input, position }) => [messageId, input, position]),
  ends: state.turns.filter(({ onPath }) => onPath).map(({ id, end, endedAt, items }) =>
    [id, end && (end.reason ?? end.code), endedAt, items.filter(isMadeCall).length]),
  handedBack: state.handedBack.map(({ input }) => input),
  agents: Object.values(state.agents).map((one) => [one.id, one.status, one.spawnCallId, one.turnIds.length]),
  files: mapped(state.artifacts, (files) => mapped(files, (revisions) => revisions.map(({ text }) => text))),
  items: state.turns.map(({ items }) => items.map(({ kind }) => kind)),
  notes: state.turns.flatMap(({ items }) => items.filter(({ kind }) => kind === "note").map(({ type }) => type)),
};
"""


TOLD = r"""
const { agents, childTurns } = module.applyEvents(module.initialState(), given);
const [agent] = Object.values(agents);
const shown = ({ text, fromAgentId }) => [text, fromAgentId];
const taken = ({ items }) => items.filter(({ kind }) => kind === "message").map(shown);
return {
  waiting: agent.waiting.map(shown),
  turns: agent.turnIds.map((id) => [childTurns[id].message.senders, taken(childTurns[id])]),
};
"""


PARTS = r"""
return given.logs.flatMap((events) => {
  const parsed = {}, texts = {};
  for (const { type, data } of events) {
    if (type !== "token") continue;
    const id = data.message_id;
    texts[id] = (texts[id] ?? "") + data.text;
    parsed[id] = module.parseMarkdown(texts[id], parsed[id] ?? null);
  }
  const whole = (id) => JSON.stringify(module.parseMarkdown(texts[id]).blocks);
  return Object.keys(texts).map((id) => JSON.stringify(parsed[id].blocks) === whole(id));
});
"""


def check(logs: list[list[dict[str, Any]]], rounds: int = 20) -> None:
    run_module("state/reducer.js", CHECK, {"logs": logs, "rounds": rounds})


async def shown(studio: RunningStudio, session_id: str) -> dict[str, Any]:
    """Return what the state of a session shows, checked against what the API says of it."""
    events = await log(studio, session_id)
    check([events], rounds=5)
    found = run_module("state/reducer.js", SHOWN, events)
    listed = [
        [row["role"], row["content"]]
        for row in await messages(studio, session_id)
        if row["content"] and not row.get("injected")
    ]
    assert [row for row in found["rows"] if row[0] != "note"] == listed
    answer = await studio.client.get("/api/confirms", params={"session_id": session_id})
    assert [row["id"] for row in answer.json()["confirms"]] == found["confirms"]
    waiting = (await studio.client.get(f"/api/sessions/{session_id}/queue")).json()["messages"]
    places = {"queued": "after", "steered": "into"}
    assert [[row["message_id"], row["input"], places[row["state"]]] for row in waiting] == found["queue"]
    turns = (await studio.client.get(f"/api/sessions/{session_id}/turns")).json()["turns"]
    assert [[row[key] for key in ("turn_id", "outcome", "ended_at", "tool_calls")] for row in turns] == found["ends"]
    return found


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_state_of_a_recorded_log_is_the_same_however_its_events_arrive() -> None:
    assert len(RECORDED) > 5
    check([read(path) for path in RECORDED])


async def rewind(studio: RunningStudio, session_id: str, message_id: str | None) -> str | None:
    """Rewind a session, and return where a rewind leads that reverses it."""
    answer = await studio.client.post(f"/api/sessions/{session_id}/rewind", json={"message_id": message_id})
    return answer.json()["undo"]["message_id"]


@pytest.mark.ci_lane
@IN_A_FILE
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
async def test_recorded_logs_are_folded_and_their_answers_parsed_in_a_tab_as_they_arrive(
    make_studio: StudioMaker, tab: Tab
) -> None:
    given = json.dumps({"logs": [read(path) for path in RECORDED], "rounds": 5})
    async with make_studio() as studio:
        await tab.open(f"http://127.0.0.1:{studio.port}/")

        async def run(name: str, body: str) -> Any:
            return await tab.evaluate(f"import('/assets/{name}').then((module) => ((given) => {{{body}}})({given}))")

        assert await run("state/reducer.js", CHECK) is None
        answers = await run("text/markdown.js", PARTS)
        assert answers
        assert all(answers)


async def test_thoughts_and_calls_and_a_rewind_that_is_reversed(make_studio: StudioMaker) -> None:
    write = call("file_write", {"path": "a.txt", "content": "x"}, pieces=4)
    script = [[think("Hm. "), say("I "), say("write."), write, call("look", {})], [think("So"), "written"], "two"]
    async with make_studio(ScriptedModel(script), tools=builtin_tools(), permission_mode="auto") as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "one", "again")
        whole = await shown(studio, session_id)
        assert whole["items"] == [["thinking", "text", "call", "call", "thinking", "text"], ["text"]]
        assert whole["outcomes"] == ["done", "done"]
        answer = next(row["message_id"] for row in await messages(studio, session_id) if row["content"] == "written")
        for place, count in [(answer, 5), (None, 0)]:
            undo = await rewind(studio, session_id, place)
            assert len([row for row in (await shown(studio, session_id))["rows"] if row[0] != "note"]) == count
            await rewind(studio, session_id, undo)
            assert [row for row in (await shown(studio, session_id))["rows"] if row[0] != "note"] == whole["rows"]


async def test_waiting_requests_and_messages_and_what_a_stop_leaves(make_studio: StudioMaker) -> None:
    ask = call("ask_user", {"text": "Which?", "options": ["a", "b"]})
    script = [call("note", {"text": "x"}), ask, "So it is.", call("note", {"text": "y"})]
    async with make_studio(ScriptedModel(script), tools=[*builtin_tools(), note]) as studio:
        session_id = await studio.session()
        await studio.turn(session_id)
        asked = (await studio.events_until(session_id, "confirm_required"))[-1].data["data"]
        await studio.turn(session_id, "later", when_busy="queue")
        await studio.turn(session_id, "now", when_busy="steer")
        waiting = await shown(studio, session_id)
        assert (waiting["open"], len(waiting["queue"])) == ([asked["id"]], 2)
        path = f"/api/sessions/{session_id}/queue"
        await studio.turn(session_id, "at once", when_busy="queue")
        await studio.turn(session_id, "not at all", when_busy="queue")
        (*_, at_once, never) = (await shown(studio, session_id))["queue"]
        await studio.client.patch(f"{path}/{at_once[0]}", json={"when_busy": "steer", "input": "right now"})
        await studio.client.delete(f"{path}/{never[0]}")
        assert [row[1:] for row in (await shown(studio, session_id))["queue"]] == [
            ["later", "after"],
            ["now", "into"],
            ["right now", "into"],
        ]
        body = {"approved": True, "digest": asked["digest"]}
        await studio.client.post(f"/api/confirms/{asked['id']}", json=body)
        async with studio.events(session_id) as frames:
            question = (await until(frames, "question_asked"))[-1].data["data"]
            assert (await shown(studio, session_id))["open"] == [question["id"]]
            await studio.client.post(f"/api/questions/{question['id']}", json={"answer": "a"})
            await until(frames, "final")
            await until(frames, "confirm_required")  # of the queued message
        await studio.turn(session_id, "never", when_busy="queue")
        await studio.client.post(f"/api/sessions/{session_id}/stop")
        async with studio.events(session_id) as frames:
            await until(frames, "handed_back")  # the one that was removed
            await until(frames, "handed_back")
        stopped = await shown(studio, session_id)
    assert (stopped["open"], stopped["queue"], stopped["handedBack"]) == ([], [], ["never"])
    assert stopped["outcomes"] == ["done", "stopped"]
    assert ["user", "now"] in stopped["rows"]
    assert stopped["rows"][-1] == ["note", "handed_back"]


async def test_a_team_speaks_in_turns_below_and_repeats_no_speech(make_studio: StudioMaker) -> None:
    script = [[say("I look. "), call("list_files", {"path": "."})], "One.", "Two.", "Three.", "Four."]
    async with make_studio(ScriptedModel(script), tools=builtin_tools()) as studio:
        team_file(studio.services.settings.home, PAIR.replace('"Write."', '"Write."\ntools = ["list_files"]'))
        session_id = (await studio.client.post("/api/sessions", json={"name": "Team", "team": "pair"})).json()["id"]
        for text in ("Write.", "Again."):
            cursor = (await studio.turn(session_id, text)).json()["cursor"]
            async with studio.events(session_id, cursor=cursor) as frames:
                async for frame in frames:
                    if frame.data and frame.type == "final" and frame.data["agent_id"] == "meta":
                        break
        found = await shown(studio, session_id)
        assert found["items"] == [["turn", "turn"]] * 2
        speech = next(row["message_id"] for row in await messages(studio, session_id) if row["content"] == "One.")
        await rewind(studio, session_id, speech)
        assert len((await shown(studio, session_id))["rows"]) < len(found["rows"])


async def test_subagents_are_linked_to_the_calls_that_began_them(make_studio: StudioMaker) -> None:
    spawn = call("spawn_subagent", {"task": "Find it", "name": "searcher"})
    script = [[spawn, call("wait_subagents")], [say("Found."), usage(20, 3)], "It is found."]
    async with make_studio(ScriptedModel(script), tools=session_tools()) as studio:
        session_id = await studio.session()
        await studio.turn(session_id)
        async with studio.events(session_id) as frames:
            await until(frames, "subagent_completed")
            await until(frames, "final")
        found = await shown(studio, session_id)
    assert found["agents"] == [["searcher-1", "completed", "call_1", 1]]
    assert found["items"] == [["call", "call", "text"]]


async def test_messages_to_a_subagent_wait_until_it_takes_them_and_say_who_sent_them(make_studio: StudioMaker) -> None:
    spawn = call("spawn_subagent", {"task": "Find it", "name": "helper"})
    tell = call("message_subagent", {"agent_id": "helper-1", "text": "From above."})
    script: list[Any] = [spawn, "Later.", tell, "Told."]
    worker: list[Any] = [hang(), call("note", {"text": "a"}), "Found.", "More."]
    model: ChatModel = ByAgent(script, worker)  # type: ignore[assignment]

    async with make_studio(model, tools=[*session_tools(), note]) as studio:
        session_id = await studio.session()
        path = f"/api/sessions/{session_id}/subagents/helper-1"

        async def send(text: str) -> None:
            answer = await studio.client.post(f"{path}/message", json={"text": text})
            assert answer.status_code == 202

        async def told() -> Any:
            events = await log(studio, session_id)
            check([events], rounds=5)
            return run_module("state/reducer.js", TOLD, events)

        await run_turn(studio, session_id, "go")
        await wait_until(lambda: model.worker.requests)  # type: ignore[attr-defined]
        await send("Hurry.")
        assert await told() == {"waiting": [["Hurry.", None]], "turns": [[[], []]]}
        async with studio.events(session_id) as frames:
            await studio.client.post(f"{path}/cancel", json={})
            await until(frames, "subagent_error")
            assert (await told())["waiting"] == [["Hurry.", None]]
            await studio.client.post(f"{path}/retry", json={})
            request = (await until(frames, "confirm_required"))[-1].data["data"]
            assert await told() == {"waiting": [], "turns": [[[], []], [[], []]]}
            await send("Well.")
            await run_turn(studio, session_id, "tell it")
            assert (await told())["waiting"] == [["Well.", None], ["From above.", "meta"]]
            await studio.client.post(
                f"/api/confirms/{request['id']}", json={"approved": True, "digest": request["digest"]}
            )
            await until(frames, "subagent_completed")
            await send("More.")
            await until(frames, "subagent_completed")
        assert await told() == {
            "waiting": [],
            "turns": [[[], []], [[], [["Well.", None], ["From above.", "meta"]]], [[None], []]],
        }


async def test_a_subagent_that_works_does_not_work_in_a_fork(make_studio: StudioMaker) -> None:
    spawn = call("spawn_subagent", {"task": "Find it", "name": "searcher"})
    model: ChatModel = ByAgent([spawn, "Later."], [[say("so"), hang()]])  # type: ignore[assignment]
    async with make_studio(model, tools=session_tools()) as studio:
        session_id = await studio.session()
        await studio.turn(session_id)
        await studio.events_until(session_id, "final")
        fork = (await studio.client.post(f"/api/sessions/{session_id}/fork", json={})).json()["id"]
        agents = [(await shown(studio, each))["agents"] for each in (session_id, fork)]
    assert agents == [[["searcher-1", state, "call_1", 1]] for state in ("running", "cancelled")]


async def test_options_have_files_of_their_own_until_one_is_picked(make_studio: StudioMaker) -> None:
    def create(content: str, path: str = "index.html") -> Any:
        return call("create_file", {"path": path, "content": content}, pieces=5)

    script = [create("<h1>🥐 one"), create("<h1>🥐 two"), "made", "made", [create("never" * 9, "b.html"), cut()]]
    async with make_studio(ScriptedModel(script), tools=builtin_tools()) as studio:
        session_id = await studio.session()
        cursor = (await studio.turn(session_id, "a page", variants=2)).json()["cursor"]
        async with studio.events(session_id, cursor=cursor) as frames:
            async for frame in frames:
                if frame.data and frame.type == "final" and frame.data["agent_id"] == "meta":
                    break
        made = await shown(studio, session_id)
        assert made["items"] == [["turn", "turn", "text"]]
        assert [len(made["files"][option]["index.html"]) for option in ("1", "2")] == [1, 1]
        assert "0" not in made["files"]
        await studio.client.post(f"/api/sessions/{session_id}/options/2/pick")
        await studio.turn(session_id, "more")
        await studio.events_until(session_id, "error")
        found = await shown(studio, session_id)
        page = await studio.client.get(f"/api/sessions/{session_id}/artifacts/index.html")
    assert found["files"]["0"] == {"index.html": [page.text]}
    assert found["outcomes"] == ["done", "failed"]
    assert ["note", "picked"] in found["rows"]


MALFORM = r"""
const { applyEvents, initialState } = module;
let seed = 11;
const random = (below) => (seed = (seed * 48271) % 2147483647) % below;
const JUNK = [null, 7, "", "__proto__", [], {}, [null], { content: 1 }, true];
const spoil = (value) => {
  if (random(6) === 0) return JUNK[random(JUNK.length)];
  if (Array.isArray(value)) return value.map(spoil);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).filter(() => random(12)).map(([key, part]) => [key, spoil(part)]));
};
for (const events of given.logs) for (let round = 0; round < given.rounds; round += 1) {
  let state = initialState();
  for (const event of events) {
    const spoilt = random(3) ? { ...event, data: spoil(event.data) } : random(2) ? event : spoil(event);
    state = applyEvents(state, [{ ...spoilt, seq: undefined }]);
  }
}
return null;
"""


def test_malformed_events_are_never_a_failure() -> None:
    logs = [read(path) for path in RECORDED]
    run_module("state/reducer.js", MALFORM, {"logs": logs, "rounds": 40})


LONG = r"""
const { applyEvents, initialState } = module;
const events = [];
const add = (type, data, turn_id) => events.push({ type, data, agent_id: "meta", session_id: "s", turn_id,
  seq: events.length + 1, ts: new Date(1.7e12 + 50 * events.length).toISOString() });
for (let turn = 0, call = 0; events.length < given.events; turn += 1) {
  add("turn_started", { input: "x", model: "m", message_id: `u${turn}` }, `t${turn}`);
  for (let round = 1; round <= given.rounds; round += 1) {
    const message_id = `m${call += 1}`, tool_call_id = `c${call}`, name = "bash_exec";
    add("round_start", { round, max_rounds: 30 }, `t${turn}`);
    add("state", { state: "planning" }, `t${turn}`);
    for (let word = 0; word < 5; word += 1) add("thinking", { text: "hm ", message_id, offset: 3 * word }, `t${turn}`);
    for (let word = 0; word < 20; word += 1) add("token", { text: "word ", message_id, offset: 5 * word }, `t${turn}`);
    add("tool_call_delta", { tool_call_id, name, arguments_delta: '{"command": "true"}' }, `t${turn}`);
    add("tool_call", { tool_call_id, name, arguments: { command: "true" } }, `t${turn}`);
    add("confirm_required", { id: `r${call}`, question: "?", context: { tool: name, tool_call_id } }, `t${turn}`);
    add("confirm_response", { id: `r${call}`, approved: true, by: "user" }, `t${turn}`);
    add("tool_progress", { tool_call_id, name, elapsed_seconds: 2, output: "a line".repeat(20) }, `t${turn}`);
    add("tool_result", { tool_call_id, name, result: "ok", is_error: false, outcome: "ok" }, `t${turn}`);
  }
  add("final", { text: "done", message_id: `f${turn}`, reason: "answer", usage: {} }, `t${turn}`);
  if (turn % 3 === 2) add("session_changed", { rewound_to: `f${turn - 1}` }, null);
}
const times = Array.from({ length: 3 }, () => { // of the CPU: other processes take their share of it
  const begin = process.cpuUsage();
  applyEvents(initialState(), events);
  const { user, system } = process.cpuUsage(begin);
  return (user + system) / 1000;
});
return Math.min(...times);
"""


@pytest.mark.parametrize("rounds", [2, 100_000])  # many turns, and one long one
def test_a_long_log_is_folded_fast_and_in_linear_time(rounds: int) -> None:
    def milliseconds(events: int) -> float:
        return run_module("state/reducer.js", LONG, {"events": events, "rounds": min(rounds, events // 33)})

    assert milliseconds(15_000) < 500
    assert milliseconds(60_000) < 12 * milliseconds(15_000)


WAITING = r"""
let state = module.applyEvents(module.initialState(), []), seq = 0;
const shown = () => state.turns[0].items.map(({ phase, startedAt, outcome }) =>
  `${outcome ?? phase} ${startedAt?.slice(17, 19) ?? ""}`.trim());
return given.map(([type, data]) => {
  const ts = new Date(1e12 + 1000 * (seq += 1)).toISOString();
  state = module.applyEvents(state, [{ type, data, agent_id: "meta", turn_id: "t", seq, ts }]);
  return shown();
});
"""


def test_a_call_waits_while_another_one_is_written_or_runs_and_its_time_begins_with_its_turn() -> None:
    names = {"a": "bash_exec", "b": "file_read", "c": "file_read", "d": "bash_exec"}

    def event(type_: str, id_: str, **data: Any) -> tuple[str, dict[str, Any]]:
        return type_, {"tool_call_id": id_, "name": names[id_], **data}

    steps = [
        (("turn_started", {"input": "x", "model": "m", "message_id": "u"}), []),
        (event("tool_call_delta", "a", arguments_delta="{}"), ["written"]),
        (event("tool_call_delta", "b", arguments_delta="{"), ["queued", "written"]),
        (event("tool_call_delta", "b", arguments_delta="}"), ["queued", "written"]),
        (event("tool_call", "a", arguments={}), ["requested 45", "written"]),
        (event("tool_call", "b", arguments={}), ["requested 45", "queued 46"]),
        (event("tool_call", "c", arguments={}), ["requested 45", "queued 46", "queued 47"]),
        (event("tool_call", "d", arguments={}), ["requested 45", "queued 46", "queued 47", "queued 48"]),
        (event("tool_progress", "a", elapsed_seconds=2), ["running 47", "queued 46", "queued 47", "queued 48"]),
        (
            event("tool_result", "a", result="", is_error=False, outcome="ok"),
            ["ok 47", "requested 50", "requested 50", "queued 48"],  # those that read do so at the same time
        ),
        (
            event("tool_result", "b", result="", is_error=False, outcome="ok"),
            ["ok 47", "ok 50", "requested 50", "queued 48"],
        ),
        (
            event("tool_result", "c", result="", is_error=True, outcome="cancelled", duration_ms=1),
            ["ok 47", "ok 50", "cancelled 50", "requested 52"],
        ),
    ]
    told = run_module("state/reducer.js", WAITING, [event for event, _ in steps])
    assert told == [shown for _, shown in steps]
    calls = [{"phase": "done", "outcome": "cancelled", "durationMs": time} for time in (1, None)]
    words = run_module("text/tool_words.js", "return given.map((call) => module.outcomeWord(call))", calls)
    assert words == ["stopped", "not run: stopped"]
    made, failed = "1. 'a: Error: b': images/a.png (image/png, 8 × 8 pixels)", "2. 'c': Error: Refused."
    images = [
        {"phase": "done", "outcome": "ok", "name": name, "result": result, "durationMs": None}
        for name, result in (
            ("generate_images", f"{made}\n{failed}"),
            ("generate_images", f"{made}, which is too large for you to see"),
            ("look", failed),
        )
    ]
    facts = run_module("text/tool_words.js", "return given.map((call) => module.callFacts(call))", images)
    assert facts == [["1 of 2 failed"], [], []]


def running(id_: str, *items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a turn that runs, with what says what it does."""
    turn = {"id": id_, "agentId": id_, "status": "running", "startedAt": "2026-01-01T00:00:00Z", "waiting": None}
    return {**turn, "items": items, "speakers": [], "state": "planning", **fields}


def test_what_a_session_does_is_said_of_the_turn_that_does_it() -> None:
    writes = {"kind": "call", "name": "file_write", "phase": "written", "args": None}
    file = running("t", {**writes, "argsText": '{"path": "a\\u202e.py", "content": "\\"path\\": \\"b.py'})
    speech = running("writer", {"kind": "text", "complete": False})
    runs = {**writes, "name": "bash_exec", "phase": "running", "args": {"command": "for i in 1 2 3"}, "startedAt": None}
    waits = {**runs, "name": "file_edit", "phase": "queued", "args": {"path": "src/a.py"}}
    options = [running(f"option-{number}", writes) for number in (6, 7)]
    below = {each["id"]: each for each in (speech, *options)}

    def child(*names: str) -> dict[str, Any]:
        return running("t", *({"kind": "turn", "id": name} for name in names), state=None)

    turns = [
        *(file, running("t", {**writes, "argsText": '{"path": "a'}), speech, running("t", state=None)),
        *(child("writer"), child("option-7"), child("option-6", "option-7")),
        *(running("t", runs, {**waits, "name": "file_read"}), running("t", waits), {**running("u"), "id": None}),
    ]
    agents = {name: {"status": "running", "startedAt": "2026-01-01T00:00:00Z"} for name in ("a", "b")}
    states = [
        {"requests": [], "runningTurnId": turn["id"], "turns": [turn], "childTurns": below, "agents": agents}
        for turn in turns
    ]
    said = run_module("ui/activity.js", "return given.map((state) => module.activityOfSession(state).text)", states)
    assert said == [
        *("Writing a⟨U+202E⟩.py", "Writing", "Writing", "Working"),
        *("writer: Writing", "Option 7: Writing", "Writing 2 options"),
        *("Running a command", "Wants to edit a.py", "2 agents work"),
    ]


def test_rules_are_said_in_sentences() -> None:
    rules = {
        "edit files in src/": {"tool": "edit", "path": "src/**"},
        "edit any file": {"tool": "edit"},
        "make any call about files in secrets/": {"tool": "*", "path": "secrets/**"},
        "run git push with any arguments": {"tool": "bash_exec", "command": "git push"},
        "run exactly “rm ⟨U+202E⟩x”": {"tool": "bash_exec", "command": "rm \u202ex", "exact": True},
        "run pip install with any arguments, with the hosts pypi.org": {
            "tool": "bash_exec",
            "command": "pip install",
            "network": ["pypi.org"],
        },
        "run any command, with the network": {"tool": "bash_exec", "network": True},
        "fetch a page at example.com": {"tool": "web_fetch", "host": "example.com"},
        "call list_issues of github": {"tool": "list_issues", "server": "github"},
        "call look with exactly these arguments": {"tool": "look", "arguments": {"x": 1}, "exact": True},
        "make images with exactly these arguments": {"tool": "generate_images", "digest": "d", "exact": True},
    }
    said = run_module("text/rules.js", "return given.map(module.ruleSentence)", list(rules.values()))
    assert said == list(rules)
    named = Rule(decision="ask", tool="bash_exec", command='echo "a\\b" `x`', network=("a.b", "c.d"), scope="user")
    reasons = [
        f"The user's rule denies it: {Rule(decision='deny', tool='edit', path='secrets/**', scope='user')}.",
        '`git add a` is allowed by a rule: allow bash_exec command="git add".',
        f"It may run what a rule of the user is about ({named}); the command does not show it.",
        'It is allowed by a rule: allow bash_exec command="a long …',
    ]
    read = "return module.reasonPieces(given).map((pieces) => pieces.map(({text}) => text).join(''))"
    assert run_module("text/reasons.js", read, reasons) == [
        "Your rule denies it: edit files in secrets/.",
        "git add a is allowed by a rule: run git add with any arguments.",
        'It may run what a rule of yours is about (run echo "a\\b" `x` with any arguments, with the hosts a.b, c.d);'
        " the command does not show it.",
        'It is allowed by a rule: allow bash_exec command="a long …',
    ]
