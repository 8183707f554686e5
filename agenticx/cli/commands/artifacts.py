"""The `agx artifacts` command: the files that live in a session, listed, shown, and saved to a folder."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agenticx.cli.action_parser import ActionParser
from agenticx.cli.client.base import SessionInfo, SessionReader
from agenticx.cli.commands.session_access import open_stored_session, print_note
from agenticx.cli.exit_codes import DONE
from agenticx.cli.options import current_folder, whole_number
from agenticx.cli.terminal.event_text import artifact_line
from agenticx.errors import AgenticXError, SettingsError
from agenticx.settings import load_settings
from agenticx.tools.artifacts.files import UnknownArtifact
from agenticx.tools.artifacts.paths import check_artifact_path
from agenticx.tools.paths import WorkspacePath, replace_file, resolve_in_workspace
from agenticx.tools.protected import is_within, protected_part, protection_reason
from agenticx.tools.visible import escape_controls, visible_path

__all__ = ["configure", "run"]

_MAX_NAMES = 5

_EPILOG = """\
A model writes these files with create_file. They live in the session, not in its folder, until they are saved; each
change is a revision. The options that `agx run --variants` makes have files of their own. ID is a session's id, a
prefix that no other id has, or `last`. All of this also works while a server or another terminal owns the
sessions. `save` keeps the paths of the files below the folder, and writes nothing outside of it, also where a link in
it leads out. A file that decides what runs on this machine, such as .zshenv or .git/config, is saved only if PATH names
it, and none into the folder of AgenticX.

examples:
  agx artifacts list last
  agx artifacts show last index.html
  agx artifacts show last index.html --revision 1
  agx artifacts save last                    all files, to the current folder
  agx artifacts save last index.html --to ~/site --force
  agx artifacts save last --option 2         the files of an option, picked or not

exit codes: 0 done, 1 an unknown file or option, or a file that cannot be written, 2 usage"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx artifacts` to its parser."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(parser_class=ActionParser, dest="action", required=True, metavar="ACTION")

    def add(name: str, summary: str, work: Callable[[Namespace], Coroutine[Any, Any, int]]) -> ArgumentParser:
        action = actions.add_parser(name, help=summary, description=f"{summary}.", allow_abbrev=False)
        action.add_argument("session", metavar="ID", help="a session's id, a prefix that no other id has, or `last`")
        action.add_argument(
            "--option", metavar="N", type=whole_number("an option"), help="the files of this option of the session"
        )
        action.set_defaults(work=work)
        return action

    listing = add("list", "The files with their size, revision and media type", _list)
    listing.add_argument("--json", action="store_true", help="one object per line")
    showing = add("show", "The content of a file, on standard output", _show)
    showing.add_argument("path", metavar="PATH", nargs="?", help="the path of the file (default: the only one)")
    saving = add("save", "Write a file, or all of them, to a folder", _save)
    saving.add_argument("path", metavar="PATH", nargs="?", help="the path of the file (default: all files)")
    for action in (showing, saving):
        action.add_argument(
            "--revision", metavar="N", type=whole_number("a revision"), help="an earlier revision of the file PATH"
        )
    saving.add_argument("--to", metavar="DIR", type=Path, help="the folder (default: the current one)")
    saving.add_argument("--force", action="store_true", help="overwrite existing files")
    saving.add_argument("--json", action="store_true", help="one object per file that was written, with its `file`")


def run(arguments: Namespace) -> int:
    """Run `agx artifacts` and return its exit code."""
    code: int = asyncio.run(arguments.work(arguments))
    return code


# --- the commands -----------------------------------------------------------------------------------------------------


async def _list(arguments: Namespace) -> int:
    async with open_stored_session(arguments) as (client, session):
        artifacts = await client.artifacts(session.id, option=arguments.option)
        if not artifacts:
            print_note(await _no_files(client, session, arguments))
    width = max((len(visible_path(artifact.path)) for artifact in artifacts), default=0)
    for artifact in artifacts:
        row = artifact_line(asdict(artifact), path_width=width)
        print(json.dumps(asdict(artifact)) if arguments.json else f"{row}, {artifact.media_type}")
    return DONE


async def _show(arguments: Namespace) -> int:
    _check_path(arguments)
    async with open_stored_session(arguments) as (client, session):
        option = arguments.option
        path = arguments.path or await _only_path(client, session, arguments)
        content = await client.read_artifact(session.id, path, arguments.revision, option=option)
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(content)
        return DONE
    text = content.decode(errors="replace")
    if "\0" in text or text.encode() != content:
        save = f"agx artifacts save {session.id} {shlex.quote(visible_path(path))}"
        save += "" if option is None else f" --option {option}"
        raise AgenticXError(
            f"{visible_path(path)!r} is no text, which a terminal could show; `{save}` writes it to a file, and with"
            " `>` or `|` this command passes it on"
        )
    print(escape_controls(text.replace("\r\n", "\n")), end="" if text.endswith("\n") else "\n")
    return DONE


async def _save(arguments: Namespace) -> int:
    _check_path(arguments)
    if arguments.path is None and arguments.revision is not None:
        raise SettingsError("--revision needs the path of a file: each file has revisions of its own")
    async with open_stored_session(arguments) as (client, session):
        option = arguments.option
        artifacts = await client.artifacts(session.id, option=option)
        revisions = {artifact.path: artifact.revision for artifact in artifacts}
        if arguments.path is not None:
            revisions = {arguments.path: arguments.revision or revisions.get(arguments.path)}
        contents = {
            path: await client.read_artifact(session.id, path, number, option=option)
            for path, number in revisions.items()
        }
        if not contents:
            raise UnknownArtifact(await _no_files(client, session, arguments))
    for path, target in _write(contents, arguments):
        saved = {"path": path, "revision": revisions[path], "size": len(contents[path]), "file": str(target.path)}
        if arguments.json:
            print(json.dumps(saved))
        else:
            print_note(f"{artifact_line(saved)}, saved to {saved['file']}")
    return DONE


def _write(contents: Mapping[str, bytes], arguments: Namespace) -> Iterator[tuple[str, WorkspacePath]]:
    """Write the files into the folder, and yield each; write none if one exists or would be outside of the folder."""
    folder: Path = arguments.to or current_folder()
    if os.path.lexists(folder) and not folder.is_dir():
        raise SettingsError(f"--to {str(folder)!r} is not a folder")
    folder.mkdir(parents=True, exist_ok=True)
    targets = {path: _target(path, folder.resolve()) for path in contents}
    home = load_settings().home
    for path, target in targets.items():
        _check_protection(path, target.path, home, arguments)
    existing = [target.shown for target in targets.values() if target.path.exists()]
    if existing and not arguments.force:
        raise AgenticXError(f"{_first_names(existing)} already in {str(folder)!r}; --force overwrites")
    for path, content in contents.items():
        replace_file(targets[path], content)
        yield path, targets[path]


def _check_protection(path: str, target: Path, home: Path, arguments: Namespace) -> None:
    """Raise `AgenticXError` for a file in the home of AgenticX, and for one that is protected unless PATH names it."""
    if is_within(target, home):
        raise AgenticXError(f"{visible_path(path)!r} would be written to {str(home)!r}, the folder of AgenticX itself")
    part = protected_part(Path(path))
    if part is not None and arguments.path is None:
        raise AgenticXError(
            f"{visible_path(path)!r} is not saved with all files: {protection_reason(part)} Give its PATH to save it"
        )


def _check_path(arguments: Namespace) -> None:
    """Raise `InvalidArguments` for a path that no file can have."""
    if arguments.path is not None:
        check_artifact_path(arguments.path)


async def _no_files(client: SessionReader, session: SessionInfo, arguments: Namespace) -> str:
    """Return a clause that says that there are no files, and where some may be."""
    numbers = await client.option_numbers(session.id)
    if not numbers or arguments.option is not None:
        return f"{_owner(arguments)} has no files; a model writes some with create_file"
    return (
        f"{_owner(arguments)} has no files; options have files of their own: `--option {numbers[0]}` names one of"
        f" {', '.join(map(str, numbers))}, and `/pick {numbers[0]}` in `agx chat -c` goes on with it"
    )


async def _only_path(client: SessionReader, session: SessionInfo, arguments: Namespace) -> str:
    match await client.artifacts(session.id, option=arguments.option):
        case []:
            raise UnknownArtifact(await _no_files(client, session, arguments))
        case [only]:
            return only.path
        case artifacts:
            names = _first_names([visible_path(artifact.path) for artifact in artifacts])
            raise SettingsError(f"give the path of a file: {names} in {_owner(arguments)}")


def _owner(arguments: Namespace) -> str:
    return "the session" if arguments.option is None else f"option {arguments.option}"


def _first_names(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{', '.join(map(repr, names[:_MAX_NAMES]))}{rest} {'is' if len(names) == 1 else 'are'}"


def _target(path: str, folder: Path) -> WorkspacePath:
    """Return the path of the file in the folder; raise an `AgenticXError` if a link leads out of the folder."""
    check_artifact_path(path)
    leads_to = Path(os.path.realpath(folder / path))
    if not leads_to.is_relative_to(folder):
        raise AgenticXError(f"{visible_path(path)!r} would be written outside the folder, to {str(leads_to)!r}")
    return resolve_in_workspace(path, folder)
