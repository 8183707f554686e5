"""A long message on the page: its parts are rows of the log, of which those are mounted that are near what is seen."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from tests.support.javascript import NODE, run_module
from tests.support.lanes import Count
from tests.support.server.chromium import CHROMIUM, Tab
from tests.support.server.page import FIND_STATUS, click, find_words
from tests.support.server.running_studio import StudioMaker

NEEDS_CHROMIUM = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

DIVIDE = """
    const shown = ({ parts, references }) => JSON.stringify([parts, [...references]]);
    return given.map(({ text, step }) => {
        const made = (turn, text, complete) => module.dividedText(turn, { key: "a", text, complete, citations: [] });
        const turn = { message: {} };
        let before = null, changed = 0;
        for (let end = 1; end < text.length; end += step) {
            const { parts } = made(turn, text.slice(0, end), false);
            changed += (before ?? []).slice(0, -2).filter((part, place) => part !== parts[place]).length;
            before = parts;
        }
        const written = made(turn, text, true), read = made({ message: {} }, text, true);
        return {
            isSame: read === null || shown(written) === shown(read), isShort: read === null, changed,
            lines: written.parts.map(({ lines }) => lines),
        };
    });
"""
BLOCKS = [
    "A sentence with a [link] and `code`.\n\n",
    "# Heading\n\n",
    "- one\n- two\n\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\n",
    "```python\nprint(1)\n\nprint(2)\n```\n\n",
    "> quoted\n> text\n\n",
    "[link]: https://example.com/\n\n",
    "text\n---\n",
    "<div>\nx\n</div>\n\n",
]


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_a_text_has_the_same_parts_read_whole_and_while_it_is_written(count: Count, rng: Random) -> None:
    texts = ["".join(rng.choices(BLOCKS, k=rng.choice([10, 300, 900]))) for _ in range(count(6, 40, 100))]
    given = [{"text": text, "step": rng.randrange(40, 400)} for text in texts]
    for text, found in zip(texts, run_module("ui/text_parts.js", DIVIDE, given), strict=True):
        assert found["isSame"]
        assert found["isShort"] is (text.count("\n") + 1 + len(text) / 85 <= 40)
        assert found["changed"] == 0  # only the last part is drawn again, or two when a line is completed
        assert all(40 <= lines < 60 for lines in found["lines"][:-1])


SHOW = """
(async () => {
  const { html, render, signal } = await import("/assets/vendor/preact.js");
  const { applyEvents, initialState } = await import("/assets/state/reducer.js");
  const { Log } = await import("/assets/ui/log.js");
  const box = document.createElement("div");
  box.style.cssText = "position: fixed; inset: 0; display: grid; grid-template: minmax(0, 1fr) / minmax(0, 1fr)";
  document.body.replaceChildren(box);
  const state = signal(initialState()), command = signal(null);
  render(html`<${Log} sessionId="s" state=${state} actions=${{}} command=${command} />`, box);
  let seq = 0;
  window.add = (events) => {
    const base = { agent_id: "meta", session_id: "s", ts: "2026-01-01T00:00:00.000Z" };
    state.value = applyEvents(state.value, events.map((event) => ({ ...base, seq: seq += 1, ...event })));
  };
  window.goTo = (id) => { command.value = { name: "goTo", id }; };
  window.log = document.getElementById("log");
  window.settled = async () => {
    for (let frame = 0; frame < 4; frame += 1) await new Promise(requestAnimationFrame);
  };
})()
"""


def event(type_: str, turn_id: str = "t", **data: Any) -> dict[str, Any]:
    """Return an event of the main agent."""
    return {"type": type_, "turn_id": turn_id, "data": data}


async def add(tab: Tab, *events: dict[str, Any]) -> None:
    """Add events to the log that is shown, and wait until it is drawn."""
    await tab.evaluate(f"add({json.dumps(events)})")
    await tab.evaluate("settled()")


def section(number: int) -> str:
    rows = "| 1 | 2 |\n" * 8
    return (
        f"## Section {number}\n\nText **{number}** of [home].\n\n| a | b |\n|---|---|\n{rows}\n"
        f"```js\nconst n = {number};\n```\n\n"
    )


STARTED = event("turn_started", input="Write", model="m", message_id="u")
FROM_END = "log.scrollHeight - log.scrollTop - log.clientHeight"
ROWS = "[...log.querySelectorAll('.text-row')]"
HEADINGS = "[...log.querySelectorAll('.answer h3')].map((one) => one.textContent)"


def tokens(*texts: str) -> list[dict[str, Any]]:
    """Return the events of a message that is written in these parts."""
    offsets = [len("".join(texts[:place])) for place in range(len(texts))]
    return [event("token", text=text, message_id="m", offset=at) for text, at in zip(texts, offsets, strict=True)]


@pytest.mark.anyio
@pytest.mark.ci_lane
@NEEDS_CHROMIUM
async def test_of_a_long_message_what_is_near_is_mounted_and_the_rest_stays_within_reach(
    make_studio: StudioMaker, tab: Tab
) -> None:
    table = "| a |\n|---|\n" + "| 1 |\n" * 250
    texts = [*map(section, range(150)), f"{table}\n[home]: https://example.com/\n\n", "That is", " all."]
    written = tokens(*texts)
    async with make_studio() as studio:
        await tab.open(f"http://127.0.0.1:{studio.port}/")
        await tab.evaluate(SHOW)
        await add(tab, STARTED, *written[:5])
        await tab.evaluate("log.dispatchEvent(new WheelEvent('wheel', { deltaY: -300 }))")
        await tab.evaluate("void (log.scrollTop = 300)")
        top = "log.querySelectorAll('.answer h3')[1].getBoundingClientRect().top"
        before = await tab.evaluate(top)
        await add(tab, *written[5:9])  # it becomes several rows
        await add(tab, *written[9:100])
        assert await tab.evaluate(top) == before
        await tab.evaluate("log.querySelector('.pill').click()")
        await tab.evaluate("settled()")
        for token in written[100:150]:
            await add(tab, token)
            assert await tab.evaluate(FROM_END) <= 1
        await add(tab, *written[150:152])
        assert await tab.evaluate("log.querySelectorAll('*').length") < 1200  # the whole has 5,000
        await tab.evaluate(
            f"""(() => {{
                window.changed = new Set();
                const rows = {ROWS};
                const note = ({{ target }}) => changed.add(rows.findIndex((row) => row.contains(target)));
                for (const row of rows) new MutationObserver((records) => records.forEach(note))
                    .observe(row, {{ subtree: true, characterData: true, childList: true }});
                window.last = rows.length - 1;
            }})()"""
        )
        await add(tab, written[152])
        assert await tab.evaluate("[...changed].join() === `${last}`")
        caret = "getComputedStyle(one.querySelector('.markdown > :last-child'), '::after').content === '\"\"'"
        assert await tab.evaluate(f"{ROWS}.map((one) => {caret}).indexOf(true) === last")
        await add(tab, event("final", text="".join(texts), message_id="m", reason="answer", usage={}))
        assert await tab.evaluate("log.querySelector('.streaming')") is None
        assert await tab.evaluate(FROM_END) <= 1

        await tab.evaluate("goTo('m')")  # as a link to the message does
        await tab.evaluate("settled()")
        assert (await tab.evaluate(HEADINGS))[0] == "Section 0"
        assert await tab.evaluate("log.querySelector('.answer p a').href") == "https://example.com/"
        names = "[...log.querySelectorAll('article')].map((one) => one.ariaLabel)"
        assert await tab.evaluate(names) == ["Write"]

        await tab.evaluate("log.querySelector('.answer pre').focus()")
        await tab.evaluate("getSelection().setBaseAndExtent(log.querySelector('.answer h3').firstChild, 0, log, 0)")
        await tab.evaluate("getSelection().extend(log.querySelectorAll('.answer h3')[3].firstChild, 9)")
        for _ in range(12):  # what is selected stays, in the message
            await tab.evaluate("void (log.scrollTop += 500)")
            await tab.evaluate("settled()")
        selected = await tab.evaluate("getSelection().toString()")
        assert selected.startswith("Section 0")
        assert selected.endswith("Section 3")
        await tab.evaluate("getSelection().removeAllRanges()")
        assert await tab.evaluate("document.activeElement.localName") == "pre"
        await tab.evaluate("void (log.scrollTop = log.scrollHeight / 2)")
        await tab.evaluate("settled()")
        assert "Section 0" not in await tab.evaluate(HEADINGS)
        assert await tab.evaluate("document.activeElement === log")  # so that keys still scroll

        await tab.evaluate("goTo('t/end')")
        await click(tab, "Show 50 more rows")
        await tab.wait_for("log.querySelectorAll('td').length >= 250")
        await tab.evaluate("goTo('m')")
        await tab.evaluate("settled()")
        assert await tab.evaluate("log.querySelectorAll('td').length") < 250
        await tab.evaluate("goTo('t/end')")
        await tab.evaluate("settled()")
        assert await tab.evaluate("log.querySelectorAll('td').length") >= 250  # as many rows of the table as before
        for _ in range(40):  # parts that are mounted above move nothing
            await tab.evaluate("void log.dispatchEvent(new WheelEvent('wheel', { deltaY: -300 }))")
            moved = await tab.evaluate(
                """(async () => {
                    const seen = document.elementFromPoint(log.clientWidth / 2, log.clientHeight / 2).closest(".row");
                    const before = seen.getBoundingClientRect().top, top = log.scrollTop;
                    log.scrollTop -= 300;
                    const by = top - log.scrollTop;
                    await settled();
                    return Math.abs(seen.getBoundingClientRect().top - before - by);
                })()"""
            )
            assert moved <= 1
        assert await tab.evaluate("log.querySelectorAll('*').length") < 1800

        await find_words(tab, "const n = 42")
        found = "[...(CSS.highlights.get('found') ?? [])].map((range) => range.toString())"
        await tab.wait_for(f"{found}.join() === 'const n = 42'")
        assert await tab.evaluate(FIND_STATUS) == "1 of 1"
        assert tab.errors == []


@pytest.mark.anyio
@pytest.mark.ci_lane
@NEEDS_CHROMIUM
async def test_the_end_is_reached_by_keys_and_fingers_while_text_is_added(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio() as studio:
        await tab.open(f"http://127.0.0.1:{studio.port}/")
        await tab.evaluate(SHOW)
        await add(tab, STARTED, *tokens("Line\n\n" * 30))
        await tab.evaluate(GROW)
        await tab.evaluate("log.focus()")
        wheel = (tab.turn_wheel, ("log", -300), ("log", 300))
        finger = (tab.drag, ("log", 200), ("log", -250))
        keys = [(tab.press, (up,), (down,)) for up, down in (("PageUp", "PageDown"), ("Home", "End"))]
        for act, up, down in (*keys, (tab.press, ("ArrowUp",), ("ArrowDown",)), wheel, finger):
            await act(*up)
            await tab.wait_for(f"{PILL} && {FROM_END} > 24")
            await tab.evaluate("rest()")
            await tab.evaluate("void (window.isGrowing = true)")
            await act(*down)
            await tab.wait_for(f"!{PILL} && {FROM_END} <= 1")
            await tab.evaluate("void (window.isGrowing = false)")
            await tab.evaluate("rest()")
        await tab.drag("log", -100)  # towards the end
        await tab.evaluate("grow()")
        await tab.wait_for(f"!{PILL} && {FROM_END} <= 1")
        await tab.press(" ", held=["Shift"])
        await tab.wait_for(f"{PILL} && {FROM_END} > 200")
        await tab.evaluate("rest()")
        await tab.evaluate("void (window.isGrowing = true)")
        await tab.press(" ")
        await tab.wait_for(f"!{PILL} && {FROM_END} <= 1")
        assert tab.errors == []


PILL = "log.querySelector('.pill')"
GROW = """
  let length = 30 * "Line\\n\\n".length;
  window.grow = () => {
    const text = "More\\n\\n".repeat(3);
    add([{ type: "token", turn_id: "t", data: { text, message_id: "m", offset: length } }]);
    length += text.length;
  };
  log.addEventListener("scroll", () => { if (window.isGrowing && log.querySelector(".pill")) grow(); }, true);
  window.rest = async () => { // until nothing moves any more
    for (let top = NaN; top !== log.scrollTop;) {
      top = log.scrollTop;
      await settled();
    }
  };
"""


@pytest.mark.anyio
@pytest.mark.ci_lane
@NEEDS_CHROMIUM
async def test_nothing_moves_when_the_steps_of_a_turn_fold_until_another_one_follows(
    make_studio: StudioMaker, tab: Tab
) -> None:
    work = [
        one
        for number in range(5)
        for one in (
            event("tool_call", tool_call_id=f"c{number}", name="bash_exec", arguments={"command": "true"}),
            event("tool_result", tool_call_id=f"c{number}", name="bash_exec", result="", is_error=False, outcome="ok"),
        )
    ]
    async with make_studio() as studio:
        await tab.open(f"http://127.0.0.1:{studio.port}/")
        await tab.evaluate(SHOW)
        await add(tab, STARTED, *tokens(*map(section, range(9)), "[home]: https://example.com/\n"), *work)
        end = "log.querySelector('.end-row').getBoundingClientRect()"
        before = await tab.evaluate(f"[{end}.top, {end}.height]")
        assert await tab.evaluate("log.querySelectorAll('.reasoning li').length") == 4
        await add(tab, event("error", code="stopped", text="Stopped.", fatal=True))
        assert await tab.evaluate("log.querySelectorAll('.reasoning:not([open])').length") == 1
        assert await tab.evaluate(f"[{end}.top, {end}.height]") == before
        assert await tab.evaluate(FROM_END) <= 1
        await add(tab, event("turn_started", "t2", input="More", model="m", message_id="u2"))
        assert await tab.evaluate(f"{end}.height") < before[1] - 20
        assert await tab.evaluate(FROM_END) <= 1
        assert tab.errors == []


@pytest.mark.anyio
@pytest.mark.ci_lane
@NEEDS_CHROMIUM
async def test_an_answer_of_one_long_paragraph_is_mounted_in_part_and_found_whole(
    make_studio: StudioMaker, tab: Tab
) -> None:
    text = "**a" * 100_000 + " **end**"
    async with make_studio() as studio:
        await tab.open(f"http://127.0.0.1:{studio.port}/")
        await tab.evaluate(SHOW)
        await add(tab, STARTED, *tokens(*(text[at : at + 50_000] for at in range(0, len(text), 50_000))))
        assert await tab.evaluate("log.querySelector('.answer p').textContent") == text  # while it is written
        await add(tab, event("final", text=text, message_id="m", reason="answer", usage={}))
        assert await tab.evaluate("log.querySelectorAll('*').length") < 1200
        assert "Show 1 more part" in await tab.evaluate("log.querySelector('.answer .show-more').textContent")
        await find_words(tab, "a end")
        await tab.wait_for(f"{FIND_STATUS} === '1 of 1'")
        assert tab.errors == []
