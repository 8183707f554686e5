"""The `agx keys` command: the keys of providers, listed by their sources, stored and removed."""

from __future__ import annotations

import getpass
import json
import sys
import warnings
from argparse import REMAINDER, SUPPRESS, ArgumentParser, Namespace
from dataclasses import asdict

from agenticx.cli.exit_codes import DONE, FAILED, USAGE
from agenticx.cli.options import configure_terminal_logging
from agenticx.errors import SettingsError
from agenticx.llms.catalog.keys import (
    KeyInEnvironment,
    NoStoredKey,
    find_provider,
    list_key_sources,
    names_sharing_key,
    remove_key,
    store_key,
)
from agenticx.provider_keys import InvalidKey, key_store
from agenticx.settings import load_settings

__all__ = ["configure", "run"]

_MAX_LINE_CHARS = 8192

_EPILOG = """\
A key is stored in the keyring of the operating system if AgenticX was installed with the extra `keyring` and there is
one, else in keys.json in AGX_HOME, which only you can read. A variable such as OPENAI_API_KEY takes precedence over
both. A running server uses the new key from the next turn on.

examples:
  agx keys set openai                        asks for the key, and does not show it
  pass show openai | agx keys set openai     reads it from standard input
  agx keys list
  agx keys remove openai

exit codes: 0 done, 1 there is no stored key to remove, 2 usage"""


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


def run(arguments: Namespace) -> int:
    """Run `agx keys` and return its exit code."""
    configure_terminal_logging(load_settings())
    match arguments.action:
        case None:
            _list(as_json=False)
            return _report(_ADVICE, DONE)
        case "list":
            return _list(as_json=arguments.json)
        case "set":
            return _set(arguments.provider, has_more=bool(arguments.rest))
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
        f"the key of {_owners(name)} is stored in {'the keyring' if stored == 'keyring' else key_store().path}", DONE
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
