"""The `agx trust` command: AGENTS.md files shown, trusted by their content, listed, and trusted no more."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from agenticx.cli.exit_codes import DONE, FAILED, USAGE
from agenticx.cli.options import current_folder
from agenticx.permissions.trusted_files import TrustedFile, TrustStore, open_trust
from agenticx.sessions.store.factory import using_shared_state
from agenticx.settings import Settings, load_settings
from agenticx.tools.agents_files import AgentsFile, find_agents_files
from agenticx.tools.visible import visible_line, visible_path
from agenticx.untrusted_text import decode_text

__all__ = ["configure", "run"]

_SHOWN_LINES = 40
_LINE_CHARS = 200
_SHOWN_DIGITS = 12  # of a digest

_EPILOG = """\
The AGENTS.md files of a folder, and of the folders above it in its repository, are in the prompt of its sessions. Until
you trust their content, they count as texts of others: while they are in the prompt, calls that run code outside of a
sandbox or send data are asked about in every mode, and no answer to a question is remembered. Trust is in the content:
a file that changes is not trusted any more. Of a file that is too long to be used whole, the part that is used counts,
with the size.

Without FILE the files that apply in the current folder are meant. Each is shown, and trusted if you say yes.

examples:
  agx trust                      show the files that apply here, and ask
  agx trust --yes docs/AGENTS.md trust that file, without a question
  agx trust --list
  agx trust --remove             trust the files that apply here no more

exit codes: 0 all are trusted, listed or removed, 1 one is not, 2 usage"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx trust` to its parser."""
    parser.epilog = _EPILOG
    parser.add_argument("files", nargs="*", metavar="FILE", type=Path, help="an AGENTS.md (default: all that apply)")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--list", action="store_true", help="list what is trusted, with the file that had it")
    action.add_argument("--remove", action="store_true", help="trust the files no more, whatever is in them")
    action.add_argument("--yes", action="store_true", help="trust them without a question")


def run(arguments: Namespace) -> int:
    """Run `agx trust` and return its exit code."""
    folder = current_folder()
    settings = load_settings(project=folder)
    if arguments.list and arguments.files:
        return _report("--list takes no FILE", USAGE)
    with using_shared_state(settings) as shared:
        trust = open_trust(settings.home, shared)
        if arguments.list:
            return _list(trust)
        read_files = partial(_applying, folder, arguments.files, settings)
        files = read_files()
        if not files:
            return _report("no AGENTS.md applies in this folder", DONE)
        return _remove(trust, files) if arguments.remove else _trust(trust, files, read_files, yes=arguments.yes)


def _applying(folder: Path, paths: Sequence[Path], settings: Settings) -> Mapping[Path, AgentsFile | None]:
    """Return the files of these paths as they apply in a folder, else in their own; None for one that does not.

    Without paths all that apply in the folder.
    """
    here = {file.path: file for file in find_agents_files(folder, settings.private_paths)}
    if not paths:
        return here
    found = dict[Path, AgentsFile | None]()
    for given in paths:
        path = folder / os.path.expanduser(given)
        path = path.parent.resolve() / path.name
        there = find_agents_files(path.parent, settings.private_paths)
        found[path] = here.get(path) or next((file for file in there if file.path == path), None)
    return found


def _list(trust: TrustStore) -> int:
    files = trust.list()
    for one in files.values():
        print(f"{_short(one)}  {one.trusted_at[:10]}  {visible_path(one.path)}")
    return DONE if files else _report("no file is trusted; `agx trust` shows those that apply here", DONE)


def _remove(trust: TrustStore, files: Mapping[Path, AgentsFile | None]) -> int:
    """Remove the contents that the files have now, and those that are trusted because they had them."""
    trusted, results = trust.list(), list[int]()
    for path, file in files.items():
        now = set[str]() if file is None or file.reason is not None else {file.sha256}
        removed = trust.remove(one.sha256 for one in trusted.values() if one.path == str(path) or one.sha256 in now)
        name = visible_path(str(path))
        if removed:
            results.append(_report(f"{name} is trusted no more ({', '.join(map(_short, removed))})", DONE))
        else:
            results.append(_report(f"{name} was not trusted; `agx trust --list` shows what is", FAILED))
    return max(results)


def _short(file: TrustedFile) -> str:
    return file.sha256[:_SHOWN_DIGITS]


def _trust(
    trust: TrustStore,
    files: Mapping[Path, AgentsFile | None],
    read_files: Callable[[], Mapping[Path, AgentsFile | None]],
    *,
    yes: bool,
) -> int:
    trusted, results = trust.list(), list[int]()
    for path, file in files.items():
        name = visible_path(str(path))
        if file is None:
            results.append(_report(f"{name} is no AGENTS.md with text in it", FAILED))
        elif file.reason is not None:
            results.append(_report(f"{name} is left out of prompts: {file.reason}", FAILED))
        elif file.sha256 in trusted:
            results.append(_report(f"{name} is trusted", DONE))
        else:
            answer = yes or _show_and_ask(file)
            if answer is None:
                return _report("nobody can be asked here; --yes trusts it without a question", USAGE)
            if answer:  # what was shown is trusted, whatever the file has by now
                stored = trust.add(file.sha256, str(path))
                now = read_files().get(path)
                if now is not None and now.sha256 == file.sha256:
                    results.append(_report(f"{name} is trusted from now on ({_short(stored)})", DONE))
                else:
                    changed = (
                        f"has changed since: {_short(stored)}, which was shown, is trusted, what it has now is not"
                    )
                    results.append(_report(f"{name} {changed}; `agx trust` shows that", FAILED))
            else:
                results.append(_report(f"{name} is not trusted", FAILED))
    return max(results)


def _show_and_ask(file: AgentsFile) -> bool | None:
    """Show a file, and return the user's answer; None without a terminal."""
    _show(file)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    print("Trust this content? [y/N]: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _show(file: AgentsFile) -> None:
    """Print the name, the size and the first lines of a file; characters that are not seen are shown as their code."""
    used = f", of which the first {len(file.content):,} are used" if file.is_cut else ""
    print(f"{visible_path(str(file.path))}: {file.size:,} bytes{used}\n")
    lines = (decode_text(file.content, is_cut=file.is_cut) or "").replace("\r\n", "\n").rstrip("\n").split("\n")
    for line in lines[:_SHOWN_LINES]:
        print(f"  {visible_line(line, _LINE_CHARS)}")
    if len(lines) > _SHOWN_LINES:
        print(f"  … {len(lines) - _SHOWN_LINES:,} more lines: read them in the file before you trust it")
    print(flush=True)


def _report(message: str, code: int) -> int:
    print(f"agx trust: {message}", file=sys.stderr)
    return code
