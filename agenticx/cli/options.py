"""The options that `run`, `chat`, `ask` and `team run` share, and their combination with the settings."""

from __future__ import annotations

import logging
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, get_args

from agenticx.errors import SettingsError
from agenticx.logs import configure_logging
from agenticx.permissions.verdict import PermissionMode
from agenticx.sessions.hub.session_fields import check_model_name
from agenticx.settings import Settings, load_settings
from agenticx.tools.base import Tool
from agenticx.tools.visible import visible_line

__all__ = [
    "ANSWERS",
    "LAST",
    "add_turn_options",
    "configure_terminal_logging",
    "current_folder",
    "enabled_tools",
    "known_tools",
    "model_of",
    "reject_local_options",
    "settings_for",
    "whole_number",
    "workspace_of",
]

LAST = "last"
"""What --session takes for the session that was used last."""

_MAX_SHOWN_CHARS = 100

ANSWERS = """\
answers to a question (Enter alone is no, ? explains them):
  y           run this call
  s           run it, and ask no more in this session about its kind, which the question shows: `git commit …`, files in
              src/, or just this call
  a           the same always, in this folder; `agx permissions list` shows it, `agx permissions remove` takes it back
  x           run it, and ask no more in this session about exactly this call
  n [reason]  do not run it, and tell the model the reason
  e           edit the arguments, in the program that VISUAL or EDITOR names, or at the prompt, and run it with them
s, a and x are there only where a yes can be remembered: not for protected paths, for example.
To a question of the agent itself the answer is a line of your own, or the number of an option; Ctrl-D gives none.
Another window may answer first: the page, or a terminal that follows the same turn."""
"""The help on the answers to requests."""


def add_turn_options(parser: ArgumentParser, *, with_agent: bool = False) -> None:
    """Add the options that `run`, `chat`, `ask` and `team run` share; `with_agent` also the agent of a new session."""
    parser.add_argument("--team", type=_reject_team, help=SUPPRESS)
    parser.add_argument(
        "-m",
        "--model",
        metavar="M",
        help="provider:name or demo; with --base-url also the name alone (default: AGX_MODEL, else the first usable"
        " one)",
    )
    parser.add_argument(
        "--base-url",
        metavar="U",
        help="the model server's address, such as http://127.0.0.1:8080/v1, whose first model is used unless one is"
        " named; its session keeps it",
    )
    parser.add_argument("--cwd", metavar="D", type=Path, help="the folder to work in (default: the current one)")
    parser.add_argument("--yes", action="store_true", help="allow every call without asking")
    parser.add_argument(
        "--permission-mode",
        metavar="MODE",
        choices=get_args(PermissionMode),
        help=f"when to ask: {', '.join(get_args(PermissionMode))} (default: AGX_PERMISSION_MODE)",
    )
    parser.add_argument(
        "--max-tool-rounds",
        metavar="N",
        help="model calls with tools in one turn, 10 to 120; not while a server or another agx has the sessions",
    )
    session = parser.add_mutually_exclusive_group()
    session.add_argument(
        "--session",
        metavar="ID",
        help="continue a session: its id, a prefix that no other id has, or `last`; it keeps its folder, unless "
        "that is gone and --cwd names another",
    )
    session.add_argument(
        "-c", "--continue", action="store_const", const=LAST, dest="session", help="the same as --session last"
    )
    parser.set_defaults(agent=None)
    if with_agent:
        session.add_argument(
            "--agent", metavar="NAME", help="the agent of a new session, see `agx agent list`; its session keeps it"
        )


def _reject_team(name: str) -> NoReturn:
    raise ArgumentTypeError(
        f"`agx team run` runs the team {name!r}; --session continues its session, which keeps its team"
    )


def whole_number(what: str) -> Callable[[str], int]:
    """Return the type of an argument that is the number of a `what`, 1 or more."""

    def number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
            raise ArgumentTypeError(
                f"{visible_line(text, _MAX_SHOWN_CHARS)!r} is not the number of {what}, which count from 1"
            )
        return int(text)

    return number


def workspace_of(arguments: Namespace) -> Path:
    """Return --cwd or the current folder, resolved; raise SettingsError if it is not a folder."""
    folder: Path = arguments.cwd or current_folder()
    if not folder.is_dir():
        raise SettingsError(f"--cwd {str(folder)!r} is not a folder")
    return folder.resolve()


def current_folder() -> Path:
    """Return the current folder; raise SettingsError if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError as exc:
        raise SettingsError("the current folder was deleted; change to another one") from exc


def settings_for(arguments: Namespace, workspace: Path) -> Settings:
    """Return the settings that apply in `workspace`; options take precedence."""
    options = {"permission_mode": arguments.permission_mode, "max_tool_rounds": arguments.max_tool_rounds}
    return load_settings(options, project=workspace)


def model_of(arguments: Namespace) -> str | None:
    """Return --model; raise SettingsError for a name that no model has."""
    name: str | None = arguments.model
    if name is None:
        return None
    try:
        return check_model_name(name)
    except ValueError as exc:
        raise SettingsError(f"--model {name[:_MAX_SHOWN_CHARS]!r}: {exc}") from exc


def reject_local_options(arguments: Namespace, server: str) -> None:
    """Raise SettingsError for an option that only the process that runs the turn could apply."""
    if arguments.max_tool_rounds is not None:
        raise SettingsError(
            f"--max-tool-rounds cannot be used here: {server} runs the turns with its own settings; end it, or"
            " use another AGX_HOME"
        )


def enabled_tools(settings: Settings) -> Sequence[Tool]:
    """Return the default tools enabled by AGX_ENABLED_TOOLS; raise SettingsError for an unknown name in it."""
    from agenticx.assembly import configured_images, default_tools  # on first use: it imports the hub

    tools = {tool.schema.name: tool for tool in default_tools(configured_images(settings))}
    if settings.enabled_tools is None:
        return tuple(tools.values())
    unknown = [name for name in settings.enabled_tools if name not in tools]
    if unknown:
        raise SettingsError(f"AGX_ENABLED_TOOLS names the unknown tool {unknown[0]!r}; known tools: {', '.join(tools)}")
    return tuple(tools[name] for name in settings.enabled_tools)


def known_tools(settings: Settings) -> frozenset[str]:
    """Return the names of all tools of AgenticX, also of those that are not enabled and of those for notes."""
    from agenticx.assembly import configured_images, default_tools
    from agenticx.knowledge.tools import session_note_tools

    return frozenset(tool.schema.name for tool in (*default_tools(configured_images(settings)), *session_note_tools()))


def configure_terminal_logging(settings: Settings, handler: logging.Handler | None = None) -> None:
    """Configure logging at the level that was set, else at warning, because the terminal shows the turn itself."""
    configure_logging(settings.log_level if "log_level" in settings.model_fields_set else "warning", handler)
