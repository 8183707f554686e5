"""Actions of a user on the page in a browser tab."""

from __future__ import annotations

from tests.support.server.chromium import Tab
from tests.support.server.running_studio import RunningStudio

__all__ = ["FILE_EVENTS", "SHOWN", "add_files", "enter", "file_parts", "send_message"]

SHOWN = (
    "[...document.querySelectorAll('#log > :not(.message-actions, .reasoning)')]"
    ".map((part) => part.innerText).join('\\n')"
)
"""A JavaScript expression for the text of the log, without the buttons after its messages and the reasoning steps."""

FILE_EVENTS = {
    "picked": "const i = document.getElementById('files'); i.files = files.files; i.dispatchEvent(new Event('change'))",
    "dropped": "document.getElementById('log').dispatchEvent("
    "new DragEvent('drop', {dataTransfer: files, bubbles: true, cancelable: true}))",
    "pasted": "document.getElementById('input').dispatchEvent("
    "new ClipboardEvent('paste', {clipboardData: files, bubbles: true, cancelable: true}))",
}
"""JavaScript statements that add the `DataTransfer` called `files`, by the action of the user."""


async def enter(tab: Tab, studio: RunningStudio) -> None:
    """Open the page with a new ticket and wait until it shows a session."""
    await tab.open(f"http://127.0.0.1:{studio.port}/#{await studio.services.tickets.issue()}")
    await tab.wait_for("document.querySelector('#sessions [aria-current]')?.textContent")


async def send_message(tab: Tab, text: str) -> None:
    await tab.evaluate(f"document.getElementById('input').value = {text!r}")
    await tab.evaluate("document.getElementById('send').click()")


async def add_files(tab: Tab, how: str, *files: tuple[str, str]) -> None:
    """Pick, drop or paste files, given by their names and JavaScript expressions for the parts of each."""
    adding = "".join(f"files.items.add(new File({parts}, {name!r}));" for name, parts in files)
    await tab.evaluate(f"(() => {{ const files = new DataTransfer(); {adding} {FILE_EVENTS[how]}; }})()")


def file_parts(data: str) -> str:
    """Return a JavaScript expression for the bytes of a file, given in Base64."""
    return f"[Uint8Array.from(atob({data!r}), (c) => c.charCodeAt(0))]"
