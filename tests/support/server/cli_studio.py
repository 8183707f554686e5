"""`agx serve` beside the commands of a shell."""

from __future__ import annotations

import json
import re
import signal
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.support.timeouts import PATIENCE

__all__ = ["CliStudio"]


class CliStudio:
    """`agx serve` in a process of its own, and a client of it."""

    def __init__(self, agx: Any, **environment: str) -> None:
        self.home = Path(agx.environment["AGX_HOME"])
        self._agx = agx
        self._environment = environment
        self.start()

    def start(self, port: int = 0) -> None:
        before = dict(self._agx.environment)
        self._agx.environment.update(self._environment)
        self.process = self._agx.start("serve", "--port", str(port))
        self._agx.environment.clear()
        self._agx.environment.update(before)
        ready = re.search(r"http://127\.0\.0\.1:(\d+)/#", self.process.stderr.readline())
        assert ready is not None
        self.port = int(ready[1])

    @property
    def announcement(self) -> Path:
        return self.home / "studio.json"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        token = (self.home / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        content = connection.getresponse().read()
        connection.close()
        return json.loads(content) if content else None

    def end(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.communicate(timeout=PATIENCE)
