"""`agx open`: discovery of the running studio, and its page in the browser with a new ticket.

The browser is started with the path of a file that redirects to the page: every user of the machine can read a
process's arguments, and the page's URL contains a ticket.
"""

from __future__ import annotations

import asyncio
import webbrowser
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from agenticx.cli.client.discovery import find_studio, studio_endpoint
from agenticx.cli.client.handover import is_chat
from agenticx.cli.client.http import ServerUnreachable
from agenticx.cli.client.identity import check_identity
from agenticx.cli.client.studio_file import STUDIO_FILE, StudioAddress, write_private
from agenticx.errors import AgenticXError
from agenticx.sessions.store.factory import probe_store_owner
from agenticx.sessions.store.owner import probe_owner_pid
from agenticx.settings import Settings, load_settings

__all__ = ["StudioNotFound", "configure", "open_in_browser", "page_url", "remove_redirect_page", "run"]

_REDIRECT_PAGE = """\
<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={url}">
<title>AgenticX</title>
<a href="{url}">The studio</a>
"""
_TIMEOUT_SECONDS = 5.0


class StudioNotFound(AgenticXError):
    """Raised when no studio is running for this AGX_HOME, or the one that is does not give a ticket."""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--print", action="store_true", dest="only_print", help="print the address, open no browser")


def run(arguments: Namespace) -> int:
    settings = load_settings()
    address = asyncio.run(find_studio(settings.home, response_timeout=_TIMEOUT_SECONDS))
    if address is None:
        raise StudioNotFound(f"no studio is running for this AGX_HOME; {_start_hint(settings)}")
    url = page_url(address, _request_ticket(address))
    print(url)
    if not arguments.only_print:
        open_in_browser(address, url, settings.home)
    return 0


def page_url(address: StudioAddress, ticket: str) -> str:
    """Return the page's URL; the ticket is in the fragment, because browsers never send that to a server."""
    return f"{address.url}/#{ticket}"


def open_in_browser(address: StudioAddress, url: str, home: Path) -> None:
    """Open `url` in the browser, if there is one that may read files in `home`, through a file that redirects to it."""
    path = _redirect_file(home, address)
    write_private(path, _REDIRECT_PAGE.format(url=url))
    webbrowser.open(path.absolute().as_uri())


def remove_redirect_page(address: StudioAddress, home: Path) -> None:
    """Delete the file that redirected to the page."""
    _redirect_file(home, address).unlink(missing_ok=True)


def _start_hint(settings: Settings) -> str:
    """Return what the user can do where no studio runs: none can start while a process owns the sessions."""
    pid = probe_owner_pid(settings.home / STUDIO_FILE)
    if pid is None:
        pid = probe_store_owner(settings)
    if pid is None:
        return "`agx serve` starts one"
    if is_chat(settings.home, pid):
        return (
            f"a chat (process {pid}) has the sessions; `agx serve` starts one, which takes them over between two turns"
        )
    if pid == 0:
        return "another process has the sessions; once it has ended, `agx serve` starts one"
    return (
        f"process {pid} has the sessions: if it was stopped, `kill -CONT {pid}` resumes it; once it has ended,"
        " `agx serve` starts one"
    )


def _redirect_file(home: Path, address: StudioAddress) -> Path:
    return home / f"open-{address.port}.html"


def _request_ticket(address: StudioAddress) -> str:
    server = replace(studio_endpoint(address), response_timeout=_TIMEOUT_SECONDS)
    try:
        asyncio.run(check_identity(server))
        return asyncio.run(server.request_json("POST", "/api/tickets"))["ticket"]
    except (ServerUnreachable, ValueError, TypeError, KeyError) as exc:
        raise StudioNotFound(f"the studio at {address.url} does not answer") from exc
    except AgenticXError as exc:
        raise StudioNotFound(f"the studio at {address.url} refused: {exc}") from exc
