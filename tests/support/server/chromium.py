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
import time
import zlib
from collections.abc import AsyncGenerator, Sequence
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


_KEY_CODES = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowUp": 38, "ArrowDown": 40, "F2": 113, "F6": 117}
_KEY_CODES |= {" ": 32, "PageUp": 33, "PageDown": 34, "End": 35, "Home": 36}
_numbers = itertools.count(1)  # of calls: a browser outlives the tabs that call it


class Tab:
    """A page; `errors` collects exceptions and what the browser logs as errors, CSP violations included."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._responses: dict[int, asyncio.Future[Any]] = {}
        self._context: str | None = None
        self._session: str | None = None
        self._target: str | None = None
        self._document: str | None = None  # the loader of the main frame's document
        self._is_loaded = False
        self._loading = asyncio.Event()  # set at each step of that
        self._beside: list[Tab] = []
        self._trace: list[dict[str, Any]] = []
        self._traced = asyncio.Event()
        self.errors: list[str] = []
        self._reading: asyncio.Task[None] | None = None

    async def open(self, url: str) -> None:
        self._reading = asyncio.create_task(self._read())
        self._context = (await self._call("Target.createBrowserContext", on=None))["browserContextId"]
        await self._open_in_context(url)

    async def open_beside(self, url: str) -> Tab:
        """Open another tab of this one's context, with the same storage, in front of it; it is closed with this one."""
        other = Tab(self._reader, self._writer)
        other._responses, other._context = self._responses, self._context
        self._beside.append(other)
        await other._open_in_context(url)
        return other

    async def show(self) -> None:
        """Bring the tab to the front, so that the others of its context are hidden."""
        await self._call("Target.activateTarget", on=None, targetId=self._target)

    async def _open_in_context(self, url: str) -> None:
        target = await self._call("Target.createTarget", on=None, url="about:blank", browserContextId=self._context)
        self._target = target["targetId"]
        attached = await self._call("Target.attachToTarget", on=None, targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self._call(f"{domain}.enable")
        await self._load("Page.navigate", url=url)

    async def reload(self) -> None:
        await self._load("Page.reload")

    async def go(self, url: str) -> None:
        """Load another address, as the page of the tab has it loaded."""
        await self._load("Runtime.evaluate", expression=f"void setTimeout(() => open({json.dumps(url)}, '_self'))")

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

    async def busy_seconds(self) -> float:
        """Return the seconds of CPU time that the tasks of the page's main thread have taken so far."""
        await self._call("Performance.enable", timeDomain="threadTicks")
        metrics = (await self._call("Performance.getMetrics"))["metrics"]
        return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")

    @asynccontextmanager
    async def traced_tasks(self) -> AsyncGenerator[list[float]]:
        """Yield a list that has, at the end, the seconds of CPU time of each task of the page's main thread."""
        found: list[float] = []
        self._trace, self._traced = [], asyncio.Event()
        config = {"includedCategories": ["toplevel"]}
        await self._call("Tracing.start", transferMode="ReportEvents", traceConfig=config)
        yield found
        await self._call("Tracing.end")
        async with asyncio.timeout(PATIENCE):
            await self._traced.wait()
        mains = {(e["pid"], e["tid"]) for e in self._trace if e.get("args", {}).get("name") == "CrRendererMain"}
        threads: dict[tuple[int, int], list[float]] = {thread: [] for thread in mains}  # of other tabs, too
        for event in self._trace:
            thread = (event["pid"], event["tid"])
            if thread in mains and event["name"].endswith("RunTask"):
                threads[thread].append(event.get("tdur", 0) / 1e6)
        found += max(threads.values(), key=sum)

    async def heap_bytes(self) -> int:
        """Return the size of the objects that the page's scripts still reach."""
        await self._call("HeapProfiler.collectGarbage")
        return (await self._call("Runtime.getHeapUsage"))["usedSize"]

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

    async def tap(self, element: str) -> None:
        """Touch the middle of an element, given by a JavaScript expression."""
        x, y = await self._middle(element)
        await self._call("Emulation.setTouchEmulationEnabled", enabled=True)
        await self._call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        await self._call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    async def drag(self, element: str, pixels: int) -> None:
        """Touch the middle of an element, move down, or up for a negative number, and stay there for a second.

        Nothing goes on moving then.
        """
        x, y = await self._middle(element)
        await self._call("Emulation.setTouchEmulationEnabled", enabled=True)
        for event, second, ys in (
            ("touchStart", 0, [y]),
            ("touchMove", 0.1, [y + pixels]),
            ("touchMove", 1, [y + pixels + (1 if pixels > 0 else -1)]),
            ("touchEnd", 1.1, []),
        ):
            points = [{"x": x, "y": each} for each in ys]
            at = time.time() + second - 1.1
            await self._call("Input.dispatchTouchEvent", type=event, touchPoints=points, timestamp=at)

    async def _send_mouse(self, event: str, element: str, **params: Any) -> None:
        x, y = await self._middle(element)
        await self._call("Input.dispatchMouseEvent", type=event, x=x, y=y, **params)

    async def _middle(self, element: str) -> list[float]:
        """Show an element and return its place in the tab."""
        await self.evaluate(f"{element}.scrollIntoView({{block: 'center'}})")
        box = f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({element}.getBoundingClientRect())"
        return await self.evaluate(box)

    async def resize(self, width: int, height: int) -> None:
        """Give the page another size, in CSS pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        await self._call("Emulation.setDeviceMetricsOverride", **metrics)

    async def emulate(self, **media: str) -> None:
        """Tell the page of these media features, as `forced_colors="active"`, and of no others."""
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        await self._call("Emulation.setEmulatedMedia", features=features)

    async def press(self, key: str, *, held: Sequence[str] = ()) -> None:
        """Press a key where the focus is, while others are held down."""
        modifiers = sum({"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}[name] for name in held)
        typed = key if len(key) == 1 else {"Enter": "\r"}.get(key)
        pressed = {"key": key, "code": key, "modifiers": modifiers, "windowsVirtualKeyCode": _KEY_CODES.get(key, 0)}
        if typed is not None and not {"Alt", "Control", "Meta"} & set(held):
            pressed["text"] = typed
        for event in ("keyDown", "keyUp"):
            await self._call("Input.dispatchKeyEvent", type=event, **pressed)

    async def type(self, text: str) -> None:
        """Type a text where the focus is."""
        await self._call("Input.insertText", text=text)

    async def allow_clipboard(self) -> None:
        """Let the page read the clipboard."""
        permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
        await self._call("Browser.grantPermissions", permissions=permissions, browserContextId=self._context)

    async def save_downloads(self, folder: Path) -> None:
        """Have the browser store downloads in a folder, under their names, once they are complete."""
        params = {"behavior": "allow", "downloadPath": str(folder), "browserContextId": self._context}
        await self._call("Browser.setDownloadBehavior", **params)

    async def block(self, *urls: str) -> None:
        """Let requests for these URLs fail, in which `*` stands for any text, and no others."""
        await self._call("Network.enable")
        await self._call("Network.setBlockedURLs", urls=urls)

    async def close(self) -> None:
        if self._reading is None:
            return
        if self._context is not None:
            await self._call("Target.disposeBrowserContext", on=None, browserContextId=self._context)
            await self._call("Browser.getVersion", on=None)  # its answer comes after all that the tab sent
        self._reading.cancel()
        await asyncio.wait([self._reading])

    async def _load(self, method: str, **params: Any) -> None:
        """Call a method that navigates, and wait until the new document is loaded."""
        before = self._document
        wanted = (await self._call(method, **params)).get("loaderId")
        async with asyncio.timeout(PATIENCE):
            while not self._is_loaded or self._document == before or wanted not in (None, self._document):
                self._loading.clear()
                await self._loading.wait()

    async def _call(self, method: str, *, on: str | None = "tab", **params: Any) -> Any:
        """Call a method of the tab, or with `on=None` of the browser."""
        number = next(_numbers)
        self._responses[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        if on is not None:
            message["sessionId"] = self._session
        self._writer.write(json.dumps(message).encode() + b"\0")
        async with asyncio.timeout(PATIENCE):
            return await self._responses[number]

    async def _read(self) -> None:
        while raw := await self._message():
            message = json.loads(raw)
            if "id" in message and message["id"] in self._responses:
                self._responses.pop(message["id"]).set_result(message.get("result") or message)
                continue
            for tab in (self, *self._beside):
                if message.get("sessionId") == tab._session and "method" in message:
                    tab._take(message["method"], message["params"])

    def _take(self, method: str, params: Any) -> None:
        if method == "Page.frameNavigated" and "parentId" not in params["frame"]:
            self._document, self._is_loaded = params["frame"]["loaderId"], False
            self._loading.set()
        elif method == "Page.loadEventFired":
            self._is_loaded = True
            self._loading.set()
        elif method == "Tracing.dataCollected":
            self._trace += params["value"]
        elif method == "Tracing.tracingComplete":
            self._traced.set()
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])

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
