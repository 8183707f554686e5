"""The `agx keys` command: the keys of providers, listed by their sources, stored and removed."""

from __future__ import annotations

import getpass
import json
import sys
import warnings
from argparse import REMAINDER, SUPPRESS, ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path

from agenticx.cli.exit_codes import DONE, FAILED, USAGE
from agenticx.cli.options import configure_terminal_logging
from agenticx.credentials.provider_keys import InvalidKey, key_store
from agenticx.credentials.secret_key import read_secret_key
from agenticx.errors import SettingsError
from agenticx.llms.providers.keys import (
    KeyInEnvironment,
    NoStoredKey,
    find_provider,
    list_key_sources,
    names_sharing_key,
    remove_key,
    store_key,
)
from agenticx.sessions.store.factory import read_workers, using_shared_state
from agenticx.settings import Settings, load_settings
from agenticx.shared_state.state import SharedState

__all__ = ["configure", "run"]

_MAX_LINE_CHARS = 8192

_EPILOG = """\
A key is stored in the keyring of the operating system if AgenticX was installed with the extra `keyring` and there is
one, else in keys.json in AGX_HOME, which only you can read; with a PostgreSQL store it is in the database, encrypted
with the key of AGX_SECRET_FILE, for all workers. A variable such as OPENAI_API_KEY takes precedence over all of them.
A running server uses the new key from the next turn on.

`rotate-secret` encrypts all that the workers share with the key of another file: the token, keys of providers and
memory. Workers use one key, so stop all of them first; then put the file in the place of AGX_SECRET_FILE on each
worker, and start them.

examples:
  agx keys set openai                        asks for the key, and does not show it
  pass show openai | agx keys set openai     reads it from standard input
  agx keys list
  agx keys remove openai
  agx keys rotate-secret /etc/agenticx/secret.new

exit codes: 0 done, 1 there is no stored key to remove or a worker runs, 2 usage"""


_ADVICE = "`agx keys set PROVIDER` stores a key, `agx keys remove PROVIDER` removes it; `agx help keys` says more"


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx keys` to its parser."""
    parser.epilog = _EPILOG
    parser.set_defaults(json=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", help="without one: list, and how to change it")
    listing = actions.add_parser(
        "list", help="the providers that have a key", description="The providers that have a key, and its source."
    )
    listing.add_argument("--json", action="store_true", help="one object per line")
    setting = actions.add_parser(
        "set", help="store a key, asked for or read from stdin", description="Store the key of a provider."
    )
    setting.add_argument("provider", metavar="PROVIDER", help="a provider, such as openai")
    rest = setting.add_argument("rest", nargs=REMAINDER, help=SUPPRESS)  # argparse would print it as unrecognized
    rest.required = False
    removing = actions.add_parser("remove", help="remove a stored key", description="Remove the stored key.")
    removing.add_argument("provider", metavar="PROVIDER", help="a provider, such as openai")
    rotating = actions.add_parser(
        "rotate-secret",
        help="encrypt what workers share with another key",
        description="Encrypt what the workers of a database share with the key of another file.",
    )
    rotating.add_argument("file", metavar="NEW_FILE", type=Path, help="a file as AGX_SECRET_FILE names, with a new key")


def run(arguments: Namespace) -> int:
    """Run `agx keys` and return its exit code."""
    settings = load_settings()
    configure_terminal_logging(settings)
    with using_shared_state(settings) as shared:
        match arguments.action:
            case None:
                _list(as_json=False)
                return _report(_ADVICE, DONE)
            case "list":
                return _list(as_json=arguments.json)
            case "set":
                return _set(arguments.provider, has_more=bool(arguments.rest))
            case "rotate-secret":
                return _rotate_secret(settings, shared, arguments.file)
            case _:
                return _remove(arguments.provider)


def _list(*, as_json: bool) -> int:
    found = list_key_sources()
    width = max((len(one.provider) for one in found), default=0)
    for one in found:
        print(json.dumps(asdict(one)) if as_json else f"{one.provider:<{width}}  {one.source:<7}  {one.variable}")
    if not found:
        print("agx keys: no provider has a key; `agx keys set PROVIDER` stores one", file=sys.stderr)
    return DONE


def _set(name: str, *, has_more: bool) -> int:
    if has_more:
        return _report("a key is never an argument, which others can read; it is asked for, or read from stdin", USAGE)
    provider = find_provider(name)
    try:
        stored = store_key(name, _read_key(name))
    except InvalidKey as exc:
        return _report(str(exc), USAGE)
    _report(
        f"the key of {_owners(name)} is stored in {'the keyring' if stored == 'keyring' else key_store().place}", DONE
    )
    if provider.key_source() == "env" and (found := provider.find_key()) is not None:
        _report(f"{found.variable} is set in this environment and takes precedence over it here", DONE)
    return DONE


def _remove(name: str) -> int:
    try:
        remove_key(name)
    except (KeyInEnvironment, NoStoredKey) as exc:
        return _report(str(exc), FAILED)
    _report(f"the stored key of {_owners(name)} is removed", DONE)
    provider = find_provider(name)
    if provider.key_source() == "env" and (found := provider.find_key()) is not None:
        _report(f"{found.variable} is set in this environment and still applies here", DONE)
    return DONE


def _rotate_secret(settings: Settings, shared: SharedState | None, path: Path) -> int:
    if shared is None:
        return _report("AGX_STORE_URL names no PostgreSQL database, and only workers of one share a secret", FAILED)
    secret = read_secret_key(path, "the argument")
    running = {
        f"process {worker['pid']} on {worker['host']}"
        for report in read_workers(settings).values()
        for worker in (() if report is None else report["workers"])
        if worker["is_alive"]
    }
    if running:
        return _report(f"stop all workers first, which use the present key: {', '.join(sorted(running))}", FAILED)
    count = shared.change_secret(secret)
    _report(
        f"{count} values are encrypted with the key of {str(path)!r}; let AGX_SECRET_FILE of all workers have it", DONE
    )
    return DONE


def _owners(name: str) -> str:
    return " and ".join(names_sharing_key(name))


def _read_key(name: str) -> str:
    """Return the line that stdin consists of, or a line typed at a terminal without echo.

    Raises `InvalidKey` for several lines, `SettingsError` where echo cannot be avoided.
    """
    if not sys.stdin.isatty():
        line = sys.stdin.readline(_MAX_LINE_CHARS)
        if line.endswith("\n") and sys.stdin.read(_MAX_LINE_CHARS).strip():
            raise InvalidKey("more than one line was given; a key is one line")
        return line
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", getpass.GetPassWarning)  # it would show the key
            return getpass.getpass(f"Key for {name}: ")
    except getpass.GetPassWarning:
        raise SettingsError("this terminal cannot hide what is typed; pipe the key into `agx keys set`") from None
    except EOFError:
        return ""


def _report(message: str, code: int) -> int:
    print(f"agx keys: {message}", file=sys.stderr)
    return code
