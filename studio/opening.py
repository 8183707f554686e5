"""`agx open`: finds the running studio and opens its page with a fresh ticket.

1. A running studio says where it is in AGX_HOME/studio-PID.json, `{"url": "http://127.0.0.1:8765", "pid": 123}`. Each
   has a note of its own, so that one that ends takes nothing from another.
2. The browser is given a file that forwards to the page, as everybody on the machine can read a process's arguments and
   the page's address holds a ticket.
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
from agenticx.sessions.opening import database_path
from agenticx.sessions.sqlite.owner import owner_pid
from agenticx.settings import Settings, load_settings
from studio.auth import load_token

__all__ = ["Address", "NoStudio", "configure", "find_studio", "open_in_browser", "page_url", "run"]

_FORWARDING = """\
<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={url}">
<title>AgenticX</title>
<a href="{url}">The studio</a>
"""
_SECONDS = 5.0


class NoStudio(AgenticXError):
    """No studio answers for this AGX_HOME."""


class _NobodyAnswers(NoStudio):
    """There may be none at all."""


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
        for note in _notes(home):
            if _address(note) is None:
                note.unlink(missing_ok=True)
        _write_private(_note(home, os.getpid()), json.dumps({"url": self.url, "pid": os.getpid()}) + "\n")

    def withdraw(self, home: Path) -> None:
        """Take the note back, and the file that forwarded to the page."""
        for path in (_note(home, os.getpid()), _forwarding(home, self)):
            path.unlink(missing_ok=True)


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--print", action="store_true", dest="only_print", help="print the address, open no browser")


def run(arguments: Namespace) -> int:
    settings = load_settings()
    try:
        address = find_studio(settings.home)
        url = page_url(address, _fresh_ticket(address, load_token(settings)))
    except _NobodyAnswers as exc:
        raise NoStudio(f"{exc}; {_hint(settings)}") from exc
    print(url)
    if not arguments.only_print:
        open_in_browser(address, url, settings.home)
    return 0


def page_url(address: Address, ticket: str) -> str:
    """The page's address; the ticket stands in the fragment, which browsers send to nobody."""
    return f"{address.url}/#{ticket}"


def open_in_browser(address: Address, url: str, home: Path) -> None:
    """Show the page at `url`, where there is a browser that may read files in `home`."""
    path = _forwarding(home, address)
    _write_private(path, _FORWARDING.format(url=url))
    webbrowser.open(path.absolute().as_uri())


def find_studio(home: Path) -> Address:
    """Where the studio of this AGX_HOME runs, the latest if there are several; raises `NoStudio` if none says so."""
    for note in _notes(home):
        if (address := _address(note)) is not None:
            return address
    raise _NobodyAnswers("no studio is running for this AGX_HOME")


def _hint(settings: Settings) -> str:
    """What to do where no studio answers: one cannot be started while a process has the sessions."""
    pid = owner_pid(database_path(settings))
    if pid is None:
        return "`agx serve` starts one"
    if pid == 0:
        return "another process has the sessions; once it has ended, `agx serve` starts one"
    return (
        f"process {pid} has the sessions: if it was stopped, `kill -CONT {pid}` lets it go on; once it has ended,"
        " `agx serve` starts one"
    )


def _notes(home: Path) -> list[Path]:
    """What studios wrote down, the latest first."""
    notes: list[tuple[float, Path]] = []
    for path in home.glob("studio-*.json"):
        with suppress(FileNotFoundError):
            notes.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(notes, reverse=True)]


def _note(home: Path, pid: int) -> Path:
    return home / f"studio-{pid}.json"


def _forwarding(home: Path, address: Address) -> Path:
    return home / f"open-{address.port}.html"


def _address(note: Path) -> Address | None:
    """What a note says, if it can be read and its studio's process lives."""
    try:
        said = json.loads(note.read_text())
        host, _, port = said["url"].removeprefix("http://").rpartition(":")
        os.kill(said["pid"], 0)
        return Address(host, int(port))
    except (OSError, ValueError, KeyError):  # PermissionError: the process is another user's by now
        return None


def _write_private(path: Path, content: str) -> None:
    """Put a file in place that only its owner may read, all of it at once."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(content)
    temporary.replace(path)


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
        raise _NobodyAnswers(f"the studio at {address.url} does not answer") from exc
    finally:
        connection.close()
    if answer.status != 201:
        raise NoStudio(f"the studio at {address.url} refused: {content.get('detail', answer.status)}")
    return content["ticket"]
