"""Benchmarks of the page in Chromium: how it opens, and its log while it streams, is opened, and scrolls."""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions import SessionRecord, Store
from agenticx.settings import load_settings
from studio.server import StudioServer, listen
from studio.services import make_services
from tests.benchmarks.rows import Row, Scale
from tests.support.commits import append
from tests.support.server.chromium import CHROMIUM, Tab, browser_tab

__all__ = ["page_rows"]

SETUP = r"""
(async () => {
  const { html, render, signal } = await import("/assets/vendor/preact.js");
  const { applyEvents, initialState } = await import("/assets/state/reducer.js");
  const { Below } = await import("/assets/ui/below.js");
  const { Composer } = await import("/assets/ui/composer.js");
  const { Log } = await import("/assets/ui/log.js");
  const { PreviewPane } = await import("/assets/ui/preview_pane.js");
  const box = document.createElement("div");
  box.style.cssText = "position: fixed; inset: 0; display: grid; grid-template: minmax(0, 1fr) auto / minmax(0, 1fr)";
  document.body.replaceChildren(box);
  const frame = () => new Promise((resolve) => requestAnimationFrame(() => resolve(performance.now())));
  const painted = async () => { await frame(); await new Promise((resolve) => setTimeout(resolve)); };
  const p95 = (times) => times.sort((one, other) => one - other)[Math.floor(0.95 * times.length)];
  // How far the message box and the end of the log have moved, in parts of the window. Chromium's own score of layout
  // shifts counts as moved what stays in its place while the log scrolls.
  const places = () => [...box.querySelectorAll(".end-row, textarea")].slice(-2)
    .map((one) => one.getBoundingClientRect().top);
  const movedBetween = (before, after) => after.reduce((sum, top, at) => {
    const pixels = Math.abs(top - before[at]);
    return sum + (pixels > 1 ? pixels / innerHeight : 0);
  }, 0);

  const PROSE = "The quick **brown fox** jumps over the `lazy` dog, then it rests for a while.\n\n- one\n- two\n\n";
  const CODE = "```python\nfor n in range(9):\n    print(n)\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n## So\n\n";
  const WORDS = (PROSE.repeat(3) + CODE).split(/(?<= )/);

  let seq = 0;
  const event = (type, turn_id, data, agent_id = "meta") => ({ type, data, agent_id, session_id: "bench", turn_id,
    seq: seq += 1, ts: new Date(1.7e12 + 50 * seq).toISOString() });

  function* log(turns, rounds) {
    for (let turn = 0; turn < turns; turn += 1) {
      const id = `t${turn}`;
      yield event("turn_started", id, { input: `message ${turn}`, model: "m", message_id: `u${turn}` });
      for (let round = 1; round <= rounds; round += 1) {
        const message_id = `m${turn}-${round}`, tool_call_id = `c${turn}-${round}`;
        const name = ["file_read", "bash_exec", "file_edit"][round % 3];
        yield event("round_start", id, { round, max_rounds: 30 });
        yield event("state", id, { state: "planning" });
        yield event("thinking", id, { text: "Hm. ", message_id, offset: 0 });
        let offset = 0;
        for (const text of WORDS) { yield event("token", id, { text, message_id, offset }); offset += text.length; }
        yield event("tool_call", id, { tool_call_id, name, arguments: { path: "src/a.py", command: "true" } });
        const result = "line\n".repeat(20);
        yield event("tool_result", id, { tool_call_id, name, result, is_error: false, outcome: "ok" });
      }
      yield event("final", id, { text: "Done.", message_id: `f${turn}`, reason: "answer", usage: {} });
    }
  }

  const actions = { leaveDock() {} };
  const open = async (events, perFrame = 4000) => {
    const state = signal(initialState()), id = `s${performance.now()}`;
    render(html`<${Log} key=${id} sessionId=${id} state=${state} actions=${actions} command=${signal(null)} />
      <div class="below">
        <${Below} key=${id} id=${id} feed=${{ state, isCaughtUp: signal(true) }} actions=${actions} />
        <${Composer} sessionId=${id} session=${null} state=${state} actions=${actions} whenBusy=${signal("queue")} />
      </div>`, box);
    await painted();
    const begin = performance.now();
    for (let at = 0; at < events.length; at += perFrame) {
      await frame();
      state.value = applyEvents(state.value, events.slice(at, at + perFrame));
    }
    await painted();
    const took = performance.now() - begin;
    await painted();
    const log = document.getElementById("log");
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 2;
    return { state, took, isAtEnd, elements: box.querySelectorAll("*").length };
  };

  /** Call `draw(count)` with how many of `tokens` are due, in each frame; return the 95th frame of 100. */
  const paced = async (tokens, perSecond, draw) => {
    const times = [], begin = performance.now();
    let last = await frame();
    for (let sent = 0; sent < tokens;) {
      const now = await frame();
      times.push(now - last);
      last = now;
      const due = Math.min(tokens, Math.floor((now - begin) / 1000 * perSecond));
      draw(sent, due);
      sent = due;
    }
    await painted();
    return p95(times);
  };

  window.bench = {
    async opened(turns, rounds) {
      const events = [...log(turns, rounds)];
      const { state, ...figures } = await open(events);
      let folded = performance.now();
      applyEvents(initialState(), events);
      folded = performance.now() - folded;
      return { ...figures, events: events.length, folded };
    },
    async scrolled(turns, rounds, frames) {
      await open([...log(turns, rounds)]);
      const log_ = document.getElementById("log");
      const times = [];
      log_.dispatchEvent(new WheelEvent("wheel", { deltaY: -100 }));
      let last = await frame();
      for (let count = 0; count < frames; count += 1) {
        log_.scrollTop -= 120;
        const now = await frame();
        times.push(now - last);
        last = now;
      }
      return { p95: p95(times), top: log_.scrollTop };
    },
    /** The same loop without anything to scroll or draw. */
    async idle(frames) {
      box.replaceChildren();
      const times = [];
      let last = await frame();
      for (let count = 0; count < frames; count += 1) {
        const now = await frame();
        times.push(now - last);
        last = now;
      }
      return { p95: p95(times) };
    },
    /** Open a long log for a message that is to stream; `plain` shows a text box and one text node instead. */
    async prepared(plain) {
      if (plain) {
        render(null, box);
        box.replaceChildren(document.createElement("pre"), document.createElement("textarea"));
      } else this.state = (await open([...log(40, 3)])).state;
      this.keys = [];
      const field = box.querySelector("textarea");
      field.addEventListener("keydown", async ({ timeStamp }) => {
        await painted();
        this.keys.push(performance.now() - timeStamp);
        field.value = ""; // so that the box does not grow
        field.dispatchEvent(new Event("input", { bubbles: true })); // or the draft still has the letter
      });
      field.focus();
      return {};
    },
    /** Stream a message into what was prepared, with a decision near its end. */
    async streamed(tokens, perSecond, plain) {
      const { state, keys } = this, id = `streamed ${seq}`, pre = box.querySelector("pre");
      const apply = (...events) => { state.value = applyEvents(state.value, events); };
      if (!plain) apply(event("turn_started", id, { input: "go", model: "m", message_id: `${id} go` }));
      await painted();
      await painted();
      let offset = 0, shift = 0, last = plain ? [] : places();
      const frames = await paced(tokens, perSecond, (from, to) => {
        const texts = Array.from({ length: to - from }, (_, at) => WORDS[(from + at) % WORDS.length]);
        if (plain) { pre.append(...texts); return; }
        shift += movedBetween(last, last = places()); // what was painted last
        if (texts.length) apply(...texts.map((text) => {
          const token = event("token", id, { text, message_id: `${id} m`, offset });
          offset += text.length;
          return token;
        }));
      });
      if (!plain) shift += movedBetween(last, places());
      const elements = box.querySelectorAll("*").length;
      let begin = performance.now();
      await painted();
      const unchanged = performance.now() - begin;
      if (plain) return { p95: frames, unchanged, keys: p95(keys) };
      const tool = "bash_exec", tool_call_id = `${id} c`, args = { command: "make" };
      apply(event("tool_call", id, { tool_call_id, name: tool, arguments: args }));
      await painted();
      begin = performance.now();
      apply(event("confirm_required", id, { id: `${id} q`, question: "Run it?", agent_path: ["meta"], digest: "d",
        context: { tool, tool_call_id, command: "make", cwd: "/", arguments: args } }));
      await painted();
      const asked = performance.now() - begin, isAsked = Boolean(box.querySelector("[aria-label=Decision] .allow"));
      apply(event("confirm_response", id, { id: `${id} q`, approved: true, by: "user" }));
      await painted();
      apply(event("tool_result", id, { tool_call_id, name: tool, result: "made", is_error: false, outcome: "ok" }));
      await painted();
      await painted();
      last = places();
      apply(event("final", id, { text: "Done.", message_id: `${id} f`, reason: "answer", usage: {} }));
      await painted();
      await painted();
      const ended = movedBetween(last, places());
      return { p95: frames, elements, ended, asked, isAsked, shift, keys: p95(keys) };
    },
    /** Let four options write a page each, beside each other in the pane. */
    async variants(tokens, perSecond) {
      const state = signal(initialState()), session = signal({ id: "bench" }), root = `variants ${seq}`;
      render(html`<${PreviewPane} session=${session} state=${state} actions=${actions} detail=${signal(null)} />`, box);
      const turns = [1, 2, 3, 4].map((number) => ({ turn: `${root} ${number}`, agent: `option-${number}`, offset: 3 }));
      const path = "index.html";
      const artifact = ({ turn, agent }, data) => event("artifact", turn, { path, revision: 1, ...data }, agent);
      state.value = applyEvents(state.value, [
        event("turn_started", root, { input: "four", model: "m", message_id: `${root} m` }),
        ...turns.map(({ turn, agent }) =>
          event("turn_started", turn, { input: "four", model: "m", parent_turn_id: root }, agent)),
        ...turns.map((option) => artifact(option, { delta: "<p>", offset: 0 })),
      ]);
      while (box.querySelectorAll("iframe").length < 4) await frame();
      const frames = await paced(tokens, perSecond, (from, to) => {
        const events = [];
        for (let at = from; at < to; at += 1) {
          const option = turns[at % 4];
          const delta = `<p style="color: #${100 + at % 899}">${WORDS[at % WORDS.length]}</p>\n`;
          events.push(artifact(option, { delta, offset: option.offset }));
          option.offset += delta.length;
        }
        if (events.length) state.value = applyEvents(state.value, events);
      });
      return { p95: frames };
    },
  };
})()
"""


async def page_rows(scale: Scale) -> list[Row]:
    """Measure the page: how it opens, and its log while a message streams, while it is opened, and while it scrolls.

    Tasks of the main thread are measured by their CPU time, frames by the clock: other programs make them longer.
    """
    if CHROMIUM is None:
        return []
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings({"home": Path(folder)}, environ={}, project=Path(folder))
        listening = listen("127.0.0.1", 0)
        origin = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        services = make_services(settings, token="benchmark-token-benchmark-token-benchmark")
        server = StudioServer(services)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            async with browser_tab() as tab:
                await tab.open(f"{origin}guide")  # the first page of a browser is slow
            async with browser_tab() as tab:
                await tab.open(f"{origin}guide")
                guide = await tab.wait_for(PAINTED)
            async with browser_tab() as tab:
                await tab.open(f"{origin}#ticket={await services.tickets.issue()}")
                opening = await _opening_rows(tab, guide)
                log = await _log_rows(tab, scale)
            async with browser_tab() as tab:
                await tab.open(f"{origin}#ticket={await services.tickets.issue()}")
                await tab.wait_for("document.getElementById('input') && true")
                return [*opening, *await _stored_rows(tab, services.store, scale), *log]
        finally:
            server.should_exit = True
            await serving
            listening.close()


PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"

LOADED = """(() => {
  const links = document.querySelectorAll("link[rel=modulepreload]:not([fetchpriority=low]), script[src]");
  const first = new Set([...links].map((link) => link.href ?? link.src));
  const modules = performance.getEntriesByType("resource").filter(({ name }) => name.endsWith(".js"));
  const size = (some) => some.reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0) / 1000;
  return { first: size(modules.filter(({ name }) => first.has(name))), all: size(modules) };
})()"""


async def _opening_rows(tab: Tab, guide: float) -> list[Row]:
    await tab.wait_for("performance.getEntriesByType('resource').some(({name}) => name.endsWith('/ui/key_list.js'))")
    painted, loaded = await tab.wait_for(PAINTED), await tab.evaluate(LOADED)
    return [
        Row(name="page: first paint", value=painted, unit="ms", goal=600),
        Row(name="a page of the guide, without JavaScript: first paint", value=guide, unit="ms"),
        Row(name="page: JavaScript before the first message, as it is sent", value=loaded["first"], unit="kB", goal=60),
        Row(name="page: all JavaScript, which is loaded by the time it is idle", value=loaded["all"], unit="kB"),
    ]


STORED = """(async () => {
  const [id, last] = %s, headers = { Authorization: `Bearer ${sessionStorage.getItem("agenticx.token")}` };
  const until = async (isReached) => {
    while (!isReached()) await new Promise(requestAnimationFrame);
    return performance.now() - begin;
  };
  let begin = performance.now();
  const ended = new AbortController();
  const { body } = await fetch(`/api/sessions/${id}/events`, { headers, signal: ended.signal });
  for await (const text of body.pipeThrough(new TextDecoderStream())) if (text.includes(`"end ${last}"`)) break;
  const read = performance.now() - begin;
  ended.abort();
  begin = performance.now();
  location.hash = `#/s/${id}`;
  const newest = await until(() => document.querySelector(`#log article[aria-label="message ${last}"] .end`));
  return { read, newest, all: await until(() => document.getElementById("log").scrollHeight > 100 * last) };
})()"""


async def _stored_rows(tab: Tab, store: Store, scale: Scale) -> list[Row]:
    """Measure how a stored session is opened: until its newest turn is shown, and until it has all turns."""
    record = SessionRecord(workspace="/", created_at="2026-01-01T00:00:00.000Z")
    await store.create(record)
    turns = max(1, scale.page_events // 250)
    for number in range(turns):
        message_id = f"message {number}"
        texts = [{"text": "word ", "message_id": message_id, "offset": 5 * place} for place in range(248)]
        end = {"text": "word " * 248, "message_id": f"end {number}", "reason": "answer", "usage": {}}
        events = [
            RuntimeEvent(
                EventType.TURN_STARTED, {"input": f"message {number}", "model": "m", "message_id": f"u{number}"}
            ),
            *(RuntimeEvent(EventType.TOKEN, text) for text in texts),
            RuntimeEvent(EventType.FINAL, end),
        ]
        await append(store, record.id, f"turn {number}", events)
    took = await tab.evaluate(STORED % json.dumps([record.id, turns - 1]))
    many = f"{250 * turns:,} events" if turns > 1 else "a few events"
    return [
        Row(name=f"page, a session of {many}: its newest turn is shown", value=took["newest"], unit="ms", goal=1000),
        Row(name=f"page, a session of {many}: it has all turns", value=took["all"], unit="ms", goal=1000),
        Row(name="the same events, read without showing them", value=took["read"], unit="ms"),
    ]


async def _log_rows(tab: Tab, scale: Scale) -> list[Row]:
    await tab.evaluate(SETUP)
    frames = 3 * scale.paced_tokens
    idle = await _call(tab, "idle", frames)
    turns = max(1, scale.page_events // 490)  # of seven rounds of 70 events
    empty_heap = await tab.heap_bytes()
    async with tab.traced_tasks() as opening:
        opened = await _call(tab, "opened", turns, 7)
    heap = await tab.heap_bytes()
    scrolled = await _call(tab, "scrolled", turns, 7, frames)
    streamed = await _streamed(tab, scale.page_tokens, plain=False)
    plain = await _streamed(tab, scale.page_tokens, plain=True)
    variants = await _call(tab, "variants", scale.page_tokens // 4, 200)
    many = f"{round(opened['events'], -3):,} events" if opened["events"] >= 1000 else "a few events"
    assert opened["isAtEnd"]
    assert streamed["isAsked"]
    stream = "page, 200 tokens per second"
    return [
        Row(name=f"{stream}: main thread, per token", value=streamed["busy"], unit="ms", goal=3),
        Row(name="the same text in one text node", value=plain["busy"], unit="ms"),
        Row(name=f"{stream}: longest task", value=streamed["longest"], unit="ms", goal=50),
        Row(name="the same text in one text node: longest task", value=plain["longest"], unit="ms"),
        Row(name=f"{stream}: 95th frame of 100", value=streamed["p95"], unit="ms", goal=20),
        Row(name="the same text in one text node: 95th frame of 100", value=plain["p95"], unit="ms"),
        Row(name=f"{stream}: 95th key of 100, until it is painted", value=streamed["keys"], unit="ms", goal=50),
        Row(name="the same text in one text node: 95th key of 100", value=plain["keys"], unit="ms"),
        Row(name=f"{stream}: elements at the end", value=streamed["elements"], unit="", goal=3000),
        Row(name="page, a turn: layout shift while it streams", value=streamed["shift"], unit="", goal=0.02),
        Row(name="page, a turn: layout shift when it ends", value=streamed["ended"], unit="", goal=0.02),
        Row(name="page, a decision: from its event until it is painted", value=streamed["asked"], unit="ms", goal=100),
        Row(name="a frame without a change", value=plain["unchanged"], unit="ms"),
        Row(name="page, four variants at once: 95th frame of 100", value=variants["p95"], unit="ms", goal=34),
        Row(name=f"page, {many}: opened and shown", value=opened["took"], unit="ms", goal=1000),
        Row(name=f"page, {many}: folded, without elements", value=opened["folded"], unit="ms", goal=500),
        Row(name=f"page, {many}: longest task", value=1000 * max(opening), unit="ms", goal=200),
        Row(name=f"page, {many}: elements", value=opened["elements"], unit="", goal=3000),
        Row(name=f"page, {many}: heap", value=heap / 1e6, unit="MB", goal=40),
        Row(name="page, no events: heap", value=empty_heap / 1e6, unit="MB"),
        Row(name=f"page, {many}: 95th frame of 100 while scrolling", value=scrolled["p95"], unit="ms", goal=34),
        Row(name="an empty page: 95th frame of 100", value=idle["p95"], unit="ms"),
    ]


async def _streamed(tab: Tab, tokens: int, *, plain: bool) -> dict[str, Any]:
    """Return figures of a message that streams while a person types, with the main thread's CPU time per token."""
    await _call(tab, "prepared", plain)
    before = await tab.busy_seconds()
    async with tab.traced_tasks() as tasks:
        streaming = asyncio.create_task(_call(tab, "streamed", tokens, 200, plain))
        letters = itertools.cycle("xy")
        while not streaming.done():
            await tab.press(next(letters))
            await asyncio.wait([streaming], timeout=0.2)
        figures = await streaming
    busy = 1000 * (await tab.busy_seconds() - before) / tokens
    return figures | {"busy": busy, "longest": 1000 * max(tasks)}


async def _call(tab: Tab, name: str, *arguments: Any) -> dict[str, Any]:
    return await tab.evaluate(f"bench.{name}({', '.join(json.dumps(each) for each in arguments)})")
