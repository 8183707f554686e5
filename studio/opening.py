"""`agx open`: finds the running studio and opens its page with a fresh ticket.

A running studio says where it is in AGX_HOME/studio.json, `{"url": "http://127.0.0.1:8765", "pid": 123}`, mode 0600.
"""

from __future__ import annotations

import http.client
import json
import os
import webbrowser
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agenticx.errors import AgenticXError
from agenticx.settings import load_settings
from studio.auth import load_token

__all__ = ["Address", "NoStudio", "configure", "find_studio", "open_in_browser", "page_url", "run"]

_FILE = "studio.json"
_SECONDS = 5.0


class NoStudio(AgenticXError):
    """No studio answers for this AGX_HOME."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a studio is reached on this machine; `host` is an address as it stands in a URL."""

    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def announce(self, home: Path) -> None:
        """Write it down for `agx open` and other commands."""
        temporary = home / f".{_FILE}.{os.getpid()}"
        content = json.dumps({"url": self.url, "pid": os.getpid()})
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(content + "\n")
        temporary.replace(home / _FILE)

    def withdraw(self, home: Path) -> None:
        """Take the note back, unless another studio has written its own since."""
        with suppress(OSError, ValueError, KeyError):
            if json.loads((home / _FILE).read_text())["pid"] == os.getpid():
                (home / _FILE).unlink()


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--print", action="store_true", dest="only_print", help="print the address, open no browser")


def run(arguments: Namespace) -> int:
    settings = load_settings()
    address = find_studio(settings.home)
    url = page_url(address, _fresh_ticket(address, load_token(settings)))
    print(url)
    if not arguments.only_print:
        open_in_browser(url)
    return 0


def page_url(address: Address, ticket: str) -> str:
    """The page's address; the ticket stands in the fragment, which browsers send to nobody."""
    return f"{address.url}/#{ticket}"


def open_in_browser(url: str) -> None:
    """Show it, where there is a browser."""
    webbrowser.open(url)


def find_studio(home: Path) -> Address:
    """Where the studio of this AGX_HOME runs; raises `NoStudio` if none says so."""
    try:
        host, _, port = json.loads((home / _FILE).read_text())["url"].removeprefix("http://").rpartition(":")
        return Address(host, int(port))
    except (OSError, ValueError, KeyError) as exc:
        raise NoStudio("no studio is running for this AGX_HOME; `agx serve` starts one") from exc


def _fresh_ticket(address: Address, token: str) -> str:
    connection = http.client.HTTPConnection(address.host.strip("[]"), address.port, timeout=_SECONDS)
    try:
        connection.request(
            "POST",
            "/api/tickets",
            headers={"Host": address.url.removeprefix("http://"), "Authorization": f"Bearer {token}"},
        )
        answer = connection.getresponse()
        content = json.loads(answer.read())
    except (OSError, ValueError, http.client.HTTPException) as exc:
        raise NoStudio(f"the studio at {address.url} does not answer; `agx serve` starts one") from exc
    finally:
        connection.close()
    if answer.status != 201:
        raise NoStudio(f"the studio at {address.url} refused: {content.get('detail', answer.status)}")
    return content["ticket"]
