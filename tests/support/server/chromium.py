"""A headless Chromium driven over its debugging pipe.

The messages are JSON and end in NUL, on file descriptors 3 and 4. A test process starts at most one browser; each tab
has a context of its own there, so that tests share no cookies and no storage.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.timeouts import PATIENCE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-features=PreloadTopChromeWebUI,WebUIOmniboxPopup,WebUIOmniboxAimPopup,InitialWebUI",
    "--disable-extensions",
    "--no-startup-window",
    "--remote-debugging-pipe",
)

_LAUNCHER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


_numbers = itertools.count(1)  # of calls: a browser outlives the tabs that call it


class Tab:
    """A page; `errors` collects exceptions and what the browser logs as errors, CSP violations included."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._responses: dict[int, asyncio.Future[Any]] = {}
        self._context: str | None = None
        self._session: str | None = None
        self._loaded = asyncio.Event()
        self._reading = asyncio.create_task(self._read())
        self.errors: list[str] = []

    async def open(self, url: str) -> None:
        self._context = (await self._call("Target.createBrowserContext"))["browserContextId"]
        target = await self._call("Target.createTarget", url="about:blank", browserContextId=self._context)
        attached = await self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self._call(f"{domain}.enable")
        await self._load("Page.navigate", url=url)

    async def reload(self) -> None:
        await self._load("Page.reload")

    async def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; a promise is awaited."""
        answer = await self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def wait_for(self, expression: str) -> Any:
        """Wait until an expression is true in the page and return its value."""
        return await self.evaluate(
            f"""new Promise((resolve) => {{
                const check = () => {{ const value = {expression}; if (value) {{ done(value); }} }};
                const done = (value) => {{ clearInterval(looking); watch.disconnect(); resolve(value); }};
                const watch = new MutationObserver(check);
                watch.observe(document, {{subtree: true, childList: true, characterData: true, attributes: true}});
                const looking = setInterval(check, 100); // what stands in a field changes without a mutation
                check();
            }})"""
        )

    async def color_at(self, x: int, y: int) -> tuple[int, ...]:
        """Return the colour of a pixel of the tab as red, green and blue."""
        clip = {"x": x, "y": y, "width": 1, "height": 1, "scale": 1}
        image = base64.b64decode((await self._call("Page.captureScreenshot", clip=clip))["data"])
        parts: list[bytes] = []
        at = 8
        while at < len(image):  # chunks of a PNG: size, type, content, checksum
            size = int.from_bytes(image[at : at + 4])
            if image[at + 4 : at + 8] == b"IDAT":
                parts.append(image[at + 8 : at + 8 + size])
            at += size + 12
        return tuple(zlib.decompress(b"".join(parts))[1:4])  # after the filter of the only row

    async def turn_wheel(self, element: str, pixels: int) -> None:
        """Turn the mouse wheel over the middle of an element, given by a JavaScript expression."""
        await self._send_mouse("mouseMoved", element)
        await self._send_mouse("mouseWheel", element, deltaX=0, deltaY=pixels)

    async def click(self, element: str) -> None:
        """Click in the middle of an element, given by a JavaScript expression."""
        for event in ("mousePressed", "mouseReleased"):
            await self._send_mouse(event, element, button="left", clickCount=1)

    async def _send_mouse(self, event: str, element: str, **params: Any) -> None:
        await self.evaluate(f"{element}.scrollIntoView({{block: 'center'}})")
        box = f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({element}.getBoundingClientRect())"
        x, y = await self.evaluate(box)
        await self._call("Input.dispatchMouseEvent", type=event, x=x, y=y, **params)

    async def allow_clipboard(self) -> None:
        """Let the page read the clipboard."""
        permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
        await self._call("Browser.grantPermissions", permissions=permissions, browserContextId=self._context)

    async def save_downloads(self, folder: Path) -> None:
        """Have the browser store downloads in a folder, under their names, once they are complete."""
        params = {"behavior": "allow", "downloadPath": str(folder), "browserContextId": self._context}
        await self._call("Browser.setDownloadBehavior", **params)

    async def close(self) -> None:
        self._session = None
        if self._context is not None:
            await self._call("Target.disposeBrowserContext", browserContextId=self._context)
            await self._call("Browser.getVersion")  # its answer comes after all that the tab sent
        self._reading.cancel()
        await asyncio.wait([self._reading])

    async def _load(self, method: str, **params: Any) -> None:
        self._loaded.clear()
        await self._call(method, **params)
        async with asyncio.timeout(PATIENCE):
            await self._loaded.wait()

    async def _call(self, method: str, **params: Any) -> Any:
        number = next(_numbers)
        self._responses[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._writer.write(json.dumps(message).encode() + b"\0")
        async with asyncio.timeout(PATIENCE):
            return await self._responses[number]

    async def _read(self) -> None:
        while raw := await self._message():
            message = json.loads(raw)
            if message.get("sessionId") not in (None, self._session):  # of a tab of the test before
                continue
            if "id" in message:
                self._responses[message["id"]].set_result(message.get("result") or message)
            elif message["method"] == "Page.loadEventFired":
                self._loaded.set()
            elif message["method"] == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(message["params"]["exceptionDetails"]))
            elif message["method"] == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.errors.append(message["params"]["entry"]["text"])

    async def _message(self) -> bytes:
        try:
            return (await self._reader.readuntil(b"\0"))[:-1]
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""


@asynccontextmanager
async def browser_tab() -> AsyncGenerator[Tab]:
    """Yield a tab of this process's browser; it and all that it stored are gone at the end."""
    if _browser()[0].poll() is not None:
        _browser.cache_clear()
    answers, commands = map(os.dup, _browser()[1:])
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 26)
    transport_in, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(answers, "rb")
    )
    transport_out, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(commands, "wb"))
    tab = Tab(reader, asyncio.StreamWriter(transport_out, protocol, None, loop))
    try:
        yield tab
    finally:
        await tab.close()
        transport_in.close()
        transport_out.close()


@cache
def _browser() -> tuple[subprocess.Popen[bytes], int, int]:
    """Return a browser, which ends with this process, and the descriptors for its answers and commands."""
    assert CHROMIUM is not None
    commands, ours_out = os.pipe()
    ours_in, answers = os.pipe()
    profile = tempfile.TemporaryDirectory(prefix="agenticx-tests-browser", ignore_cleanup_errors=True)
    launcher = [sys.executable, "-ISc", _LAUNCHER, str(commands), str(answers), CHROMIUM]
    process = subprocess.Popen(
        [*launcher, *_FLAGS, f"--user-data-dir={profile.name}"],
        pass_fds=(commands, answers),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands)
    os.close(answers)

    def end() -> None:
        process.terminate()
        process.wait()
        profile.cleanup()

    atexit.register(end)
    return process, ours_in, ours_out
