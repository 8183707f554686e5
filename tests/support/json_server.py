"""A server on loopback that answers with JSON: what the fake providers of tests share."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["JsonHandler", "serving"]


class JsonHandler(BaseHTTPRequestHandler):
    """A handler of requests that logs nothing."""

    protocol_version = "HTTP/1.1"

    def read_body(self) -> bytes:
        return self.rfile.read(int(self.headers["content-length"]))

    def fixed_body(self) -> bytes | None:
        """Return the body of all responses, None for those that are sent."""
        return None

    def send_json(self, status: int, content: Any) -> None:
        """Send a response with `content`, or with the fixed body instead of it."""
        fixed = self.fixed_body()
        data = json.dumps(content).encode() if fixed is None else fixed
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        return


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve requests with `handler` and yield the address of the server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
