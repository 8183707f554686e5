"""Actions of a user on the page in a browser tab; buttons and fields are found by their names."""

from __future__ import annotations

import asyncio
import json

from tests.support.server.chromium import Tab
from tests.support.server.running_studio import RunningStudio

__all__ = [
    "DECISION",
    "FILE_EVENTS",
    "FIND_STATUS",
    "INPUT",
    "LOG",
    "PARTS_LOADED",
    "SHOWN",
    "SLOW_CLOCK",
    "STOPPED",
    "TITLE",
    "add_files",
    "button",
    "check",
    "click",
    "enter",
    "enter_beside",
    "field",
    "file_parts",
    "fill",
    "find_words",
    "open_session",
    "press_button",
    "send_and_be_asked",
    "send_message",
    "stop_by_keys",
    "text_of",
    "wait_for_focus",
    "write",
]

LOG = "(document.getElementById('log')?.innerText ?? '')"
"""A JavaScript expression for the text of the log."""

SHOWN = (
    "[...document.querySelectorAll('#log :is(.text, .answer, .speaker, p.note, .error, .call-title, .request)')]"
    ".map((part) => part.innerText).join('\\n')"
)
"""A JavaScript expression for what a log says, without the buttons after its messages and the reasoning steps."""

STOPPED = "document.getElementById('stop')?.hidden"
"""A JavaScript expression that is true while no turn runs."""

PARTS_LOADED = "performance.getEntriesByType('resource').some(({name}) => name.endsWith('/ui/key_list.js'))"
"""A JavaScript expression that is true once the page has all its parts: this one is loaded last, when it is idle."""

INPUT = "document.getElementById('input')?.value"
TITLE = "document.getElementById('title')?.innerText"

DECISION = "document.querySelector('[aria-label=Decision]')"
"""A JavaScript expression for the region of the question that waits, null without one."""

FILE_EVENTS = {
    "picked": "const i = document.getElementById('files'); i.files = files.files; i.dispatchEvent(new Event('change'))",
    "dropped": "document.getElementById('log').dispatchEvent("
    "new DragEvent('drop', {dataTransfer: files, bubbles: true, cancelable: true}))",
    "pasted": "document.getElementById('input').dispatchEvent("
    "new ClipboardEvent('paste', {clipboardData: files, bubbles: true, cancelable: true}))",
}
"""JavaScript statements that add the `DataTransfer` called `files`, by the action of the user."""

SLOW_CLOCK = """{
    const now = performance.now.bind(performance), start = now();
    performance.now = () => start + (now() - start) / 50;
}"""
"""JavaScript after which what follows within seconds in the page counts as following at once, on a busy machine too."""

_NAME = "(e.getAttribute('aria-label') ?? e.innerText).replace(/\\s+/g, ' ').trim()"
_PRESSABLE = "button, a[href], summary, [role=option], [role=menuitem]"


def button(name: str, within: str = "document") -> str:
    """Return a JavaScript expression for the first button or link that is shown whose name begins like this."""
    found = f"[...({within}?.querySelectorAll({_PRESSABLE!r}) ?? [])].filter((e) => e.checkVisibility() && !e.disabled)"
    return f"{found}.find((e) => {_NAME}.startsWith({json.dumps(name)}))"


def field(label: str, within: str = "document") -> str:
    """Return a JavaScript expression for the first field that is shown whose label begins like this."""
    names = "[e.getAttribute('aria-label'), ...[...(e.labels ?? [])].map((one) => one.innerText)]"
    fields = f"[...({within}?.querySelectorAll('input, textarea, select') ?? [])].filter((e) => e.checkVisibility())"
    return f"{fields}.find((e) => {names}.some((one) => one?.trim().startsWith({json.dumps(label)})))"


def text_of(selector: str) -> str:
    """Return a JavaScript expression for the text of the first such element on one line, "" without one."""
    return f"(document.querySelector({selector!r})?.innerText ?? '').replace(/\\s+/g, ' ').trim()"


async def enter(tab: Tab, studio: RunningStudio, route: str = "") -> None:
    """Open the page with a new ticket and wait until messages can be written, in the session that it opens first."""
    await tab.open(f"http://127.0.0.1:{studio.port}/#ticket={await studio.services.tickets.issue()}")
    await tab.resize(1280, 800)
    await tab.wait_for("location.hash.startsWith('#/') && document.getElementById('input') && true")
    if route:
        await tab.evaluate(f"location.hash = {route!r}")
        if route.startswith("#/s/"):
            await tab.wait_for(f"document.querySelector('main[data-session={route[4:]}] #input') && true")


async def enter_beside(tab: Tab, studio: RunningStudio, route: str) -> Tab:
    """Open the page in another tab, which takes the token of the first one."""
    other = await tab.open_beside(f"http://127.0.0.1:{studio.port}/{route}")
    await other.resize(1280, 800)
    return other


async def open_session(tab: Tab, studio: RunningStudio, session_id: str) -> None:
    """Open the page with a new ticket and wait until it shows that session."""
    await tab.open(f"http://127.0.0.1:{studio.port}/#ticket={await studio.services.tickets.issue()}")
    await tab.wait_for("document.getElementById('studio') && true")
    await tab.evaluate(f"location.hash = '#/s/{session_id}'")
    await tab.wait_for("document.getElementById('log')?.tabIndex === 0")


FIND_STATUS = "document.querySelector('#log .find-bar [role=status]').textContent"


async def find_words(tab: Tab, words: str) -> None:
    """Open the find bar of the log by its key, and type the words."""
    await tab.evaluate("document.getElementById('log').focus()")
    await tab.press("f", held=["Control"])
    await tab.wait_for("document.activeElement.getAttribute('aria-label') === 'Find in this session'")
    await tab.type(words)


async def click(tab: Tab, name: str, within: str = "document") -> None:
    """Wait for a button or link that can be pressed and click on it; those of a new question cannot at once."""
    await _wait_and(tab, "e.click()", button(name, within))


async def press_button(tab: Tab, name: str, within: str = "document") -> None:
    """Press a button or link with the keyboard."""
    await tab.wait_for(f"((e) => {{ e?.focus(); return e && document.activeElement === e; }})({button(name, within)})")
    await tab.press("Enter")


async def wait_for_focus(tab: Tab, selector: str, text: str = "") -> None:
    """Wait until the focus is at an element with a text."""
    active = "document.activeElement"
    await tab.wait_for(f"{active}.matches({selector!r}) && {active}.innerText.includes({text!r})")


async def check(tab: Tab, label: str, within: str = "document") -> None:
    """Wait for a box, and check it or take the check away."""
    await _wait_and(tab, "e.click()", field(label, within))


async def fill(tab: Tab, label: str, text: str, within: str = "document") -> None:
    """Wait for a field, write a text into it or choose an option."""
    dispatch = "for (const type of ['input', 'change']) e.dispatchEvent(new Event(type, {bubbles: true}));"
    await _wait_and(tab, f"e.value = {json.dumps(text)}; {dispatch}", field(label, within))


async def _wait_and(tab: Tab, statements: str, element: str) -> None:
    """Wait for an element and run statements about it, `e`, at once: a moment later it may be gone or another one."""
    await tab.wait_for(f"((e) => {{ if (!e) return false; {statements}; return true; }})({element})")


async def write(tab: Tab, text: str) -> None:
    """Write a text into the message box."""
    await fill(tab, "Message", text)


async def send_message(tab: Tab, text: str) -> None:
    await write(tab, text)
    await tab.evaluate("document.getElementById('send').click()")


async def send_and_be_asked(tab: Tab, text: str) -> None:
    """Send a message and wait for the decision that it needs."""
    await send_message(tab, text)
    await tab.wait_for(f"{DECISION} && true")


async def stop_by_keys(tab: Tab) -> None:
    """Press Esc, and once more when the page says what that does."""
    await tab.evaluate(SLOW_CLOCK)
    said = f"{text_of('#message')} === 'Esc again stops'"
    await asyncio.gather(tab.wait_for(said), tab.press("Escape"))  # it is not said for long
    await tab.press("Escape")


async def add_files(tab: Tab, how: str, *files: tuple[str, str]) -> None:
    """Pick, drop or paste files, given by their names and JavaScript expressions for the parts of each."""
    adding = "".join(f"files.items.add(new File({parts}, {name!r}));" for name, parts in files)
    await tab.evaluate(f"(() => {{ const files = new DataTransfer(); {adding} {FILE_EVENTS[how]}; }})()")


def file_parts(data: str) -> str:
    """Return a JavaScript expression for the bytes of a file, given in Base64."""
    return f"[Uint8Array.from(atob({data!r}), (c) => c.charCodeAt(0))]"
