"""The `agx vault` command: folders of notes, added, searched, checked and forgotten."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from agenticx.cli.exit_codes import DONE, FAILED
from agenticx.cli.options import configure_terminal_logging
from agenticx.knowledge import EmbeddingConsent, IndexState, NoteSearch, UnknownVault, Vault, VaultIndex, Vaults
from agenticx.settings import load_settings
from agenticx.threads import run_in_thread
from agenticx.tools.plurals import pluralize
from agenticx.tools.visible import visible_line, visible_path

__all__ = ["ask_about_embeddings", "configure", "run"]

_EPILOG = """\
A vault is a folder of .md, .markdown and .txt files. Only an index of it is stored, in AGX_HOME; no note is changed,
and `remove` forgets the index alone. Each search reads what has changed since the last one. Folders that begin with a
dot, node_modules, links, and what an .agxignore file names (as in .gitignore) are left out.

With AGX_EMBEDDING_MODEL, such as ollama:nomic-embed-text, notes are also found by meaning. If its server is not on this
machine, text of a vault is sent there only once you allow it: `add`, `search` and `agx ask` ask at a terminal, and
`embeddings` changes the answer.

In a query "double quotes" must occur, [[Note]] and #tag limit it to that note or tag.

examples:
  agx vault add ~/Notes
  agx vault search Notes "when does the lease end"
  agx vault search Notes '"lease" #house' --json
  agx vault problems Notes

A folder inside a vault, or around one, cannot be another vault: its notes would be found twice.

exit codes: 0 done, 1 nothing found, unknown vault, or it cannot be read or written, 2 usage"""

_CONSENTS: Mapping[EmbeddingConsent, str] = {
    "not_needed": "on this machine",
    "needed": "not allowed yet",
    "given": "allowed",
    "refused": "refused",
}

_EXPLANATIONS = {
    "binary": "no text; not indexed",
    "control_characters": "has control characters; indexed",
    "frontmatter": "its frontmatter is not closed or no valid YAML mapping; indexed without its values",
    "name": "its name has control characters or is not valid Unicode; not indexed",
    "not_a_file": "no regular file; not indexed",
    "not_utf8": "not UTF-8; indexed as UTF-16 if a byte order mark says so, else with replacement characters",
    "symlink": "a symbolic link; not followed",
    "too_large": "over 8 MB; not indexed",
    "unreadable": "cannot be read; not indexed",
}


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx vault` to its parser."""
    parser.epilog = _EPILOG
    parser.set_defaults(json=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", help="without one: list")

    def action(name: str, text: str, *, named: bool = True) -> ArgumentParser:
        added = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        added.add_argument("--json", action="store_true", help="one object per line")
        if named:
            added.add_argument("vault", metavar="VAULT", help="the name or id of a vault")
        return added

    adding = action("add", "add a folder of notes and index it", named=False)
    adding.add_argument("path", metavar="PATH", type=_non_empty, help="the folder")
    adding.add_argument("--name", metavar="NAME", help="a name (default: that of the folder)")
    action("list", "the vaults and the state of their indexes", named=False)
    searching = action("search", "search the notes of a vault")
    searching.add_argument(
        "query", metavar="QUERY", type=_non_empty, help="words, a question, or a phrase in double quotes"
    )
    searching.add_argument("--limit", metavar="N", type=_positive, default=8, help="most passages (default: 8)")
    searching.add_argument("--path", metavar="PATH", help="only in this note or folder, or a glob such as 'Work/**'")
    searching.add_argument("--tag", metavar="TAG", action="append", default=[], help="only in notes with this tag")
    action("problems", "files that are skipped, and defects of notes")
    action("rescan", "bring the index up to date now")
    embedding = action("embeddings", "whether text of a vault may be sent to the embedding model, and how far it is")
    embedding.add_argument("answer", nargs="?", choices=("allow", "refuse"), help="change it (default: show it)")
    action("remove", "forget a vault and delete its index, never a note")


def run(arguments: Namespace) -> int:
    """Run `agx vault` and return its exit code."""
    settings = load_settings()
    configure_terminal_logging(settings)
    return asyncio.run(_run(arguments, Vaults(settings.home, embedding_model=settings.embedding_model)))


async def _run(arguments: Namespace, vaults: Vaults) -> int:
    try:
        match arguments.action:
            case "add":
                return await _add(arguments, vaults)
            case None | "list":
                return await _list(vaults, as_json=arguments.json)
            case action:
                vault = await vaults.find(arguments.vault)
                if action == "search":
                    await ask_about_embeddings(vaults, vault)
                elif action == "embeddings":
                    return await _embeddings(arguments, vaults, vault)
                actions = {"search": _search, "problems": _problems, "rescan": _rescan}
                if action in actions:
                    return await actions[action](arguments, vault)
                await vaults.remove(vault)
                _print_note(f"{vault.record.name!r} is forgotten; its notes are where they were")
                return DONE
    finally:
        await vaults.close()


async def _add(arguments: Namespace, vaults: Vaults) -> int:
    vault, is_new = await vaults.add(Path(arguments.path), arguments.name)
    if not is_new:
        kept = "" if arguments.name in (None, vault.record.name) else "; it keeps that name until it is removed"
        _print_note(f"{visible_path(str(vault.record.path))} is the vault {vault.record.name!r} already{kept}")
    await ask_about_embeddings(vaults, vault)
    return await _rescan(arguments, vault)


async def ask_about_embeddings(vaults: Vaults, vault: Vault) -> None:
    """Ask at a terminal whether text of the notes may be sent to the embedding model, unless that has been answered."""
    embeddings = vault.embeddings
    if embeddings is None or embeddings.consent != "needed":
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        _print_note(
            f"the notes of {vault.record.name!r} are searched by words alone: their text is not sent to "
            f"{embeddings.host} until you allow it with `agx vault embeddings {shlex.quote(vault.record.name)} allow`"
        )
        return
    question = f"To find notes by meaning, send the text of {vault.record.name!r} and questions to {embeddings.host}?"
    print(f"{question} [y/N]: ", end="", file=sys.stderr, flush=True)
    answer = await run_in_thread(sys.stdin.readline, name="agx vault")
    if answer:  # not the end of the input
        await vaults.allow_embeddings(vault, allowed=answer.strip().lower() in ("y", "yes"))


async def _embeddings(arguments: Namespace, vaults: Vaults, vault: Vault) -> int:
    if vault.embeddings is None:
        _print_note(vault.embedding_problem or "no embedding model is set; name one in AGX_EMBEDDING_MODEL")
        return FAILED
    if arguments.answer is not None:
        await vaults.allow_embeddings(vault, allowed=arguments.answer == "allow")
    await vault.refresh(report=_progress(vault.record.name))
    if arguments.answer == "allow":
        await _embed(vault)
    status = await vault.embeddings.status(await vault.index())
    if arguments.json:
        print(json.dumps(asdict(status)))
        return DONE
    print(f"{vault.record.name}  {status.model} at {status.host}  {_CONSENTS[status.consent]}", end="")
    print(f"  {status.embedded:,} of {pluralize(status.passages, 'passage')} compared by meaning")
    if status.problem is not None:
        _print_note(status.problem)
    return DONE


async def _embed(vault: Vault) -> None:
    """Wait until each passage has a vector, if the model can be used; show the progress at a terminal."""
    if (embeddings := vault.embeddings) is None:
        return
    index = await vault.index()
    while not await embeddings.refresh(index, seconds=1):
        if sys.stderr.isatty():
            status = await embeddings.status(index)
            print(
                f"\ragx vault: {vault.record.name}: {status.embedded:,} of {status.passages:,} passages",
                end="",
                file=sys.stderr,
            )
    if sys.stderr.isatty():
        print(file=sys.stderr)


async def _rescan(arguments: Namespace, vault: Vault) -> int:
    await vault.refresh(report=_progress(vault.record.name))
    await _embed(vault)
    await _print_vault(vault, as_json=arguments.json)
    return DONE if vault.problem is None else FAILED


async def _list(vaults: Vaults, *, as_json: bool) -> int:
    found, damaged = await vaults.list(), await run_in_thread(vaults.registry.damaged, name="agx vault")
    for file in damaged:
        _print_note(f"{visible_path(str(file))} is damaged; remove its folder, and add the folder of the notes again")
    for vault in found:
        with suppress(UnknownVault):  # removed meanwhile
            await vault.refresh(seconds=0.5)
            await _print_vault(vault, as_json=as_json)
    if not found and not damaged:
        _print_note("there is no vault; `agx vault add PATH` adds a folder of notes")
    return DONE


async def _search(arguments: Namespace, vault: Vault) -> int:
    found = await vault.search(arguments.query, limit=arguments.limit, path=arguments.path, tags=arguments.tag)
    for result in found.results:
        passage = result.passage
        if arguments.json:
            fields = {
                name: getattr(passage, name) for name in ("path", "heading", "line_start", "line_end", "text", "sha256")
            }
            print(json.dumps({**fields, "score": result.score, "matched": result.matched}))
        else:
            heading = f"  {visible_line(passage.heading)}" if passage.heading else ""
            print(f"{visible_path(passage.path)}:{passage.line_start}{heading}")
            print("".join(f"    {visible_line(line)}\n" for line in _excerpt(passage.text, result.matched)))
    _note_rebuilt_index(vault)
    _note_search_state(found)
    return DONE if found.results else FAILED


def _excerpt(text: str, matched: tuple[str, ...]) -> list[str]:
    """Return up to three lines of a passage, those with most of the matched words."""
    lines = [(number, line[:300]) for number, line in enumerate(text.split("\n")) if line.strip()]
    lines.sort(key=lambda row: (-sum(word in row[1].lower() for word in matched), row[0]))
    return [line for _, line in sorted(lines[:3])]


def _note_search_state(found: NoteSearch) -> None:
    if found.problem is not None and not found.results:
        _print_note(f"{found.problem}, so that nothing can be found")
        return
    if found.problem is not None:
        _print_note(f"{found.problem}; these results are of the notes that were indexed before")
    if found.embedding_note is not None:
        _print_note(found.embedding_note)
    if found.state.indexed < found.state.total:
        _print_note(f"{found.state.indexed:,} of {found.state.total:,} notes are indexed so far")
    if found.query_note is not None:
        _print_note(found.query_note)
    elif not found.results and found.state.indexed < found.state.total:
        _print_note("nothing found in these; search again when more are indexed")
    elif not found.results:
        _print_note("nothing found; search for other words, or fewer of them")


async def _problems(arguments: Namespace, vault: Vault) -> int:
    problems = await vault.call(VaultIndex.problems)
    for path, problem in problems.items():
        row = {"path": path, "problem": problem}
        print(json.dumps(row) if arguments.json else f"{visible_path(path)}: {_EXPLANATIONS[problem]}")
    _note_rebuilt_index(vault)
    if vault.problem is not None:
        _print_note(vault.problem)
    elif not problems:
        _print_note("no problems")
    return DONE if vault.problem is None else FAILED


async def _print_vault(vault: Vault, *, as_json: bool) -> None:
    """Print the vault, and on stderr why it is not up to date."""
    summary, record, state = await vault.summary(), vault.record, vault.state
    if as_json:
        values = {"id": record.id, "name": record.name, "path": str(record.path), **asdict(summary), "state": state}
        print(json.dumps(values if vault.problem is None else values | {"problem": vault.problem}))
    else:
        problems = f", {pluralize(summary.problems, 'problem')}" if summary.problems else ""
        print(f"{record.name}  {visible_path(str(record.path))}  {pluralize(summary.notes, 'note')}{problems}  {state}")
    _note_rebuilt_index(vault)
    if vault.problem is not None and not as_json:
        _print_note(vault.problem)


def _note_rebuilt_index(vault: Vault) -> None:
    if vault.was_rebuilt:
        _print_note(f"the index of {vault.record.name!r} was damaged or old, and was made anew")


def _progress(name: str) -> Callable[[IndexState], None]:
    def report(state: IndexState) -> None:
        if sys.stderr.isatty():
            print(f"\ragx vault: {name}: {state.indexed:,} of {state.total:,} notes", end="", file=sys.stderr)
            if state.indexed >= state.total:
                print(file=sys.stderr)

    return report


def _positive(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 100:
        raise ValueError
    return int(text)


def _non_empty(text: str) -> str:
    if not text.strip():
        raise ArgumentTypeError("it must not be empty")
    return text


_positive.__name__ = "a number from 1 to 100"  # argparse names the type in its message


def _print_note(message: str) -> None:
    print(f"agx vault: {message}", file=sys.stderr)
