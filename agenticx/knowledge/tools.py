"""The tools for notes: search, read, list, follow links, write and append."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from agenticx.errors import InvalidArguments, ToolError
from agenticx.knowledge.index import IndexState, NoteRecord, VaultIndex
from agenticx.knowledge.parsing import MAX_READ_CHARS, Passage, note_lines, parse_note, passage_sha256
from agenticx.knowledge.passages import CITING, number_passage, outdated_line, outdated_numbers, shown_passage
from agenticx.knowledge.registry import VaultRecord, VaultUnreadable
from agenticx.knowledge.search import path_filter
from agenticx.knowledge.vault import MAX_NOTE_BYTES, NOTE_SUFFIXES, decode_note, read_note, skip_reason
from agenticx.knowledge.vaults import NoteSearch, Vault, Vaults
from agenticx.knowledge.words import query_words, tag_key
from agenticx.threads import run_in_thread
from agenticx.tools.base import Assessment, Tool, ToolOutput
from agenticx.tools.builtin.edits import file_write, write_file
from agenticx.tools.context import ToolContext, ToolState
from agenticx.tools.plurals import pluralize
from agenticx.tools.registry import tool
from agenticx.tools.visible import visible_path
from agenticx.untrusted_text import one_line

__all__ = ["CURRENT_VAULTS", "VaultAccess", "note_text", "note_tools", "read_passage", "session_note_tools"]

T = TypeVar("T")

_MAX_LISTED = 200
_SIMILAR_SHARE = 0.6

FindVaults = Callable[[], "VaultAccess"]
"""A function that returns the vaults of the turn in which it is called; raises `ToolError` if there are none."""

CURRENT_VAULTS: ContextVar[VaultAccess | None] = ContextVar("agenticx_vaults", default=None)
"""The vaults of the session in whose turn the code runs."""


@cache
def session_note_tools() -> Sequence[Tool]:
    """Return the tools for notes in the sessions of a hub, each of which has vaults of its own."""
    return note_tools(_find_current)


def _find_current() -> VaultAccess:
    if (access := CURRENT_VAULTS.get()) is None:
        raise ToolError("notes can be used in the sessions of a hub, or with the tools that note_tools() returns")
    return access


def note_tools(find: FindVaults) -> Sequence[Tool]:
    """Return the tools for the notes of the vaults that `find` returns.

    The reading tools ask nobody; `note_write` and `note_append` ask as `file_write` does. Results with text of notes
    name these as their sources.
    """
    return [*_reading_tools(find), *_writing_tools(find)]


class VaultAccess:
    """The vaults that a session may use: those with the ids `allowed`, or all."""

    def __init__(self, vaults: Vaults, allowed: Collection[str] | None = None) -> None:
        self._vaults = vaults
        self._allowed = allowed
        self._turn_id = ""
        self._queries: list[str] = []

    async def list(self) -> list[Vault]:
        """Return the vaults, ordered by name."""
        return [vault for vault in await self._vaults.list() if self._is_allowed(vault.record)]

    async def find(self, name: str | None) -> tuple[Vault, bool]:
        """Return the vault of that name, or the only one, and whether there are others; raises `ToolError`."""
        vaults = await self.list()
        return self._chosen(vaults, name, lambda vault: vault.record), len(vaults) > 1

    def find_record(self, name: str | None) -> VaultRecord:
        """Return the record of that vault; blocks."""
        records = [record for record in self._vaults.registry.list() if self._is_allowed(record)]
        return self._chosen(records, name, lambda record: record)

    def look_up(self, record: VaultRecord, function: Callable[[VaultIndex], T]) -> T:
        """Return `function(index)` for the index of a vault as it is; blocks. Raises `VaultUnreadable`."""
        return self._vaults.look_up(record, function)

    def earlier_query(self, turn_id: str, query: str) -> str | None:
        """Return a query of the same turn with mostly the same words, and remember this one."""
        if turn_id != self._turn_id:
            self._turn_id, self._queries = turn_id, []
        words = frozenset(query_words(query))
        earlier = next((other for other in self._queries if _overlap(words, frozenset(query_words(other)))), None)
        self._queries.append(query)
        return earlier

    def _chosen(self, choices: Sequence[T], name: str | None, record_of: Callable[[T], VaultRecord]) -> T:
        """Return the choice of that name or id, or the only one; raise `ToolError` that lists the names."""
        names = ", ".join(repr(record_of(choice).name) for choice in choices)
        if not choices and self._allowed is not None:
            raise ToolError("this session may use no vault of notes; the user chooses the vaults of a session")
        if not choices:
            raise ToolError("there is no vault of notes; the user can add one with `agx vault add PATH`")
        if name is None:
            if len(choices) > 1:
                raise InvalidArguments(f"there are several vaults; name one in 'vault': {names}")
            return choices[0]
        for choice in choices:
            if name in (record_of(choice).id, record_of(choice).name):
                return choice
        raise InvalidArguments(f"unknown vault {name!r}; known vaults: {names}")

    def _is_allowed(self, record: VaultRecord) -> bool:
        return self._allowed is None or record.id in self._allowed


def _overlap(words: frozenset[str], others: frozenset[str]) -> bool:
    return bool(words) and len(words & others) / len(words | others) >= _SIMILAR_SHARE


# --- reading ----------------------------------------------------------------------------------------------------------


def _reading_tools(find: FindVaults) -> Sequence[Tool]:
    @tool(risk="read")
    async def note_search(
        query: str,
        context: ToolContext,
        vault: str | None = None,
        path: str | None = None,
        tags: list[str] | None = None,
        limit: Annotated[int, Field(ge=1, le=20)] = 8,
    ) -> ToolOutput:
        """Search the user's notes; gives numbered passages, the best first.

        Args:
            query: Words or a question; "double quotes" must occur, [[Note]] and #tag limit it to that note or tag.
            vault: The name of the vault; needed only if there are several.
            path: Only this note or folder, or a glob such as "Work/**".
            tags: Only notes that have all of these tags.
            limit: How many passages to give at most.
        """
        access = find()
        found_vault, is_one_of_several = await access.find(vault)
        earlier = access.earlier_query(context.turn_id, query)
        try:
            found = await found_vault.search(query, limit=limit, path=path, tags=tags or (), report=_reporter(context))
        except VaultUnreadable as exc:
            raise ToolError(str(exc)) from exc
        name = found_vault.record.name if is_one_of_several else None
        parts: list[str] = []
        if earlier is not None:
            parts.append(
                f"You have searched for nearly the same before ({earlier!r}); use other words, or what you have."
            )
        for result in found.results:
            number = number_passage(
                context.state, found_vault.record.id, result.passage, vault_name=found_vault.record.name
            )
            parts.append(shown_passage(number, result.passage, name))
        parts.append(CITING if found.results else _nothing_found(found))
        paths = _unique(result.passage.path for result in found.results)
        parts += await _outdated_lines(found_vault, context.state, paths)
        parts += _state_notes(found.state, found.problem if found.results else None, found.embedding_note)
        return ToolOutput("\n\n".join(parts), sources=_unique(result.passage.path for result in found.results))

    @tool(risk="read")
    async def note_read(
        path: str,
        context: ToolContext,
        vault: str | None = None,
        heading: str | None = None,
        line: Annotated[int, Field(ge=1)] = 1,
        column: Annotated[int, Field(ge=1)] = 1,
    ) -> ToolOutput:
        """Read a note of the user, or one of its sections, as a numbered passage; of a long one, as much as fits.

        Args:
            path: The path of the note in its vault, or its name as in [[name]].
            vault: The name of the vault; needed only if there are several.
            heading: Read only the section with this heading.
            line: Begin at this line of the note, counted from 1.
            column: Begin at this character of that line; for a line that was too long to be read at once.
        """
        found_vault, is_one_of_several = await find().find(vault)
        passage, rest = await _call(
            found_vault, lambda index: read_passage(index, path, heading, line, column), context
        )
        number = number_passage(context.state, found_vault.record.id, passage, vault_name=found_vault.record.name)
        text = shown_passage(number, passage, found_vault.record.name if is_one_of_several else None)
        more = "" if rest is None else f"\nIt {rest}."
        old = "".join(f"\n{line}" for line in await _outdated_lines(found_vault, context.state, [passage.path]))
        return ToolOutput(f"{text}{more}\n{CITING}{old}", truncated=rest is not None, sources=(passage.path,))

    @tool(risk="read")
    async def note_links(path: str, context: ToolContext, vault: str | None = None) -> ToolOutput:
        """List the links of a note and the notes that link to it.

        Args:
            path: The path of the note in its vault, or its name as in [[name]].
            vault: The name of the vault; needed only if there are several.
        """
        found_vault, _ = await find().find(vault)
        text, source, state = await _call(found_vault, lambda index: (*_links(index, path), index.state()), context)
        return ToolOutput("\n".join([text, *_state_notes(state, found_vault.problem)]), sources=(source,))

    @tool(risk="read")
    async def note_list(
        context: ToolContext,
        path: str | None = None,
        tags: list[str] | None = None,
        sort: Literal["path", "changed"] = "path",
        vault: str | None = None,
    ) -> ToolOutput:
        """List notes: one per line, with the title and the tags.

        Args:
            path: Only this note or folder, or a glob such as "Work/**".
            tags: Only notes that have all of these tags.
            sort: By path, or those changed last first.
            vault: The name of the vault; needed only if there are several.
        """
        found_vault, _ = await find().find(vault)
        notes, state = await _call(
            found_vault, lambda index: (_filtered(index, path or "", tags or ()), index.state()), context
        )
        if sort == "changed":
            notes.sort(key=lambda note: -note.mtime_ns)
        lines = [_note_line(note) for note in notes[:_MAX_LISTED]]
        if len(notes) > _MAX_LISTED:
            lines.append(f"[… and {len(notes) - _MAX_LISTED:,} more; name a folder or a tag]")
        lines = [*(lines or ["(no notes)"]), *_state_notes(state, found_vault.problem)]
        return ToolOutput("\n".join(lines), sources=_unique(note.path for note in notes[:_MAX_LISTED]))

    return note_search, note_read, note_links, note_list


async def _outdated_lines(vault: Vault, state: ToolState, paths: Sequence[str]) -> list[str]:
    """Return a line for each of these notes that no longer has passages which the model was given before."""
    vault_id = vault.record.id
    known = {row["path"] for row in state.passages if row.get("vault") == vault_id}
    texts = await run_in_thread(
        lambda: {path: note_text(vault.record, path) for path in paths if path in known}, name="agx vault"
    )
    found = ((path, outdated_numbers(state, vault_id, path, text)) for path, text in texts.items())
    return [outdated_line(numbers, path) for path, numbers in found if numbers]


def note_text(vault: VaultRecord, path: str) -> str | None:
    """Return the text of a note as it is now, None if it is gone; blocks."""
    try:
        return decode_note(read_note(vault.path, path)).text
    except (ToolError, OSError):
        return None


def _unique(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))


def _reporter(context: ToolContext) -> Callable[[IndexState], None]:
    """Return the function that tells the user how far the index is for which a tool has waited."""

    def report(state: IndexState) -> None:
        context.emit("tool_progress", {"output": f"{state.indexed:,} of {state.total:,} notes so far\n"})

    return report


async def _call(vault: Vault, function: Callable[[VaultIndex], T], context: ToolContext) -> T:
    """Return `function(index)`; a `ToolError` says so if the vault cannot be read."""
    try:
        return await vault.call(function, report=_reporter(context))
    except VaultUnreadable as exc:
        raise ToolError(str(exc)) from exc
    except ToolError as exc:
        if vault.problem is None:
            raise
        raise ToolError(f"the notes of {vault.record.name!r} cannot be read now: {vault.problem}") from exc


def _nothing_found(found: NoteSearch) -> str:
    if found.query_note is not None:
        return f"Nothing was searched: {found.query_note}."
    if found.problem is not None:
        return f"The notes cannot be searched now, so say that: {found.problem}."
    if found.state.indexed < found.state.total:
        return "Nothing was found so far; search again later, or say that not all notes have been searched."
    return "Nothing was found; try other words, or say that the notes do not have it."


def _state_notes(state: IndexState, *problems: str | None) -> list[str]:
    """Return what the result of a tool may lack, a line each."""
    notes = [f"[{problem}]" for problem in problems if problem is not None]
    if state.indexed < state.total:
        notes.insert(0, f"[{state.indexed:,} of {state.total:,} notes are indexed so far; this is from them alone]")
    elif not state.is_scanned and not notes:
        notes.append("[the folder is still being listed, so there may be more notes]")
    return notes


def _find_note(index: VaultIndex, path: str) -> NoteRecord:
    """Return the note of that path or name; raise `ToolError` if there is none, or several of that name."""
    notes = index.notes_at(path)
    if not notes:
        state = index.state()
        indexed = (
            f"{state.indexed:,} of {state.total:,} notes are indexed so far, so it may be found later, or by its path"
            if state.indexed < state.total
            else "note_search and note_list show those that there are"
        )
        raise ToolError(f"there is no note {path!r}; {indexed}")
    if len(notes) > 1:
        paths = ", ".join(repr(visible_path(note.path)) for note in notes[:10])
        raise ToolError(f"several notes are called {path!r}; give the path of one: {paths}").quoting(
            [note.path for note in notes[:10]]
        )
    return notes[0]


def read_passage(
    index: VaultIndex,
    path: str,
    heading: str | None = None,
    line: int = 1,
    column: int = 1,
    most: int = MAX_READ_CHARS,
) -> tuple[Passage, str | None]:
    """Return a note, or one of its sections, from a line and column on as one passage; raises `ToolError`.

    It has at most `most` characters, of one line `MAX_READ_CHARS`. If it has no room for all, the second value says,
    without a subject, where the note goes on; else it is None.
    """
    note = _find_note(index, path)
    lines = note_lines(index.read(note.path).text)
    start, end = (1, len(lines)) if heading is None else _section(note.path, lines, heading)
    while end > start and not lines[end - 1].strip():
        end -= 1
    start = max(line, start)
    if start > end or column > max(len(lines[start - 1]), 1):
        where = visible_path(note.path) if heading is None else f"the section {heading!r} of {visible_path(note.path)}"
        last = f"ends with line {end}" if start > end else f"has {len(lines[start - 1])} characters in line {start}"
        raise ToolError(f"{where} {last}")
    first = lines[start - 1][column - 1 :]
    if len(first) > MAX_READ_CHARS:
        text, following = first[:MAX_READ_CHARS], column + MAX_READ_CHARS
        rest = f"goes on in line {start} at column {following}; read it with line={start} and column={following}"
        return Passage(note.path, heading, start, start, text, passage_sha256(text), column), rest
    last, chars = start, len(first)
    while last < end and chars + len(lines[last]) + 1 <= most:
        chars += len(lines[last]) + 1
        last += 1
    text = "\n".join([first, *lines[start:last]])
    rest = f"goes on at line {last + 1}, to line {end}; read it with line={last + 1}" if last < end else None
    return Passage(note.path, heading, start, last, text, passage_sha256(text), column), rest


def _section(path: str, lines: Sequence[str], heading: str) -> tuple[int, int]:
    """Return the first and last line of a section with all that is below it; raise `ToolError` if there is none."""
    wanted = " ".join(heading.lstrip("# ").split()).casefold()
    sections = parse_note(path, "\n".join(lines)).sections
    for section in sections:
        if section.heading.casefold() == wanted:
            later = (other.line for other in sections if other.line > section.line and other.level <= section.level)
            return section.line, next(later, len(lines) + 1) - 1
    known = ", ".join(repr(section.heading) for section in sections[:20]) or "none"
    raise ToolError(f"{path!r} has no heading {heading!r}; its headings: {known}").quoting([path])


def _links(index: VaultIndex, path: str) -> tuple[str, str]:
    note = _find_note(index, path)
    lines = [f"Links of {visible_path(note.path)}:"]
    for name in (*note.structure["links"], *note.structure["embeds"]):
        targets = [visible_path(target.path) for target in index.linked_notes(note.path, name)]
        lines.append(f"- {name} -> {', '.join(targets) if targets else '(no such note)'}")
    lines.append("Notes that link to it:")
    lines += [f"- {visible_path(source)}" for source in index.backlinks(note)]
    return "\n".join(lines), note.path


def _filtered(index: VaultIndex, path: str, tags: Sequence[str]) -> list[NoteRecord]:
    is_wanted, wanted = path_filter(index, path), list(map(tag_key, tags))
    return [
        note
        for note in index.all_notes()
        if is_wanted(note.path)
        and all(any(own == tag or own.startswith(f"{tag}/") for own in note.structure["tags"]) for tag in wanted)
    ]


def _note_line(note: NoteRecord) -> str:
    tags = "".join(f" #{tag}" for tag in note.structure["tags"][:10])
    return f"{visible_path(note.path)}: {note.title}{tags}"


# --- writing ----------------------------------------------------------------------------------------------------------


def _writing_tools(find: FindVaults) -> Sequence[Tool]:
    def plan_write(arguments: Mapping[str, Any], context: ToolContext) -> _Write:
        record = find().find_record(arguments.get("vault"))
        path = _path_to_write(record, arguments["path"])
        _check_content(path, arguments["content"])
        return _Write({"path": path, "content": arguments["content"]}, replace(context, workspace=record.path))

    def plan_append(arguments: Mapping[str, Any], context: ToolContext) -> _Write:
        access = find()
        record = access.find_record(arguments.get("vault"))
        path = _existing_path(access, record, arguments["path"])
        content = _appended(record.path, path, arguments["text"], arguments.get("heading"))
        _check_content(path, content)
        return _Write({"path": path, "content": content}, replace(context, workspace=record.path))

    def assess_write(arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
        plan = plan_write(arguments, context)
        with _words_of_notes():
            return _assess_change(plan, context)

    @tool(risk="write", assess=assess_write)
    async def note_write(path: str, content: str, context: ToolContext, vault: str | None = None) -> ToolOutput:
        """Create a note in a vault, or replace all of an existing one.

        Args:
            path: The path of the note in its vault; ".md" is added if it has no suffix.
            content: The complete text of the note.
            vault: The name of the vault; needed only if there are several.
        """
        arguments = {"path": path, "content": content, "vault": vault}
        plan = await run_in_thread(plan_write, arguments, context, name="agx vault")
        with _words_of_notes():
            return await write_file(**plan.arguments, context=plan.context)

    def assess_append(arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
        plan = plan_append(arguments, context)
        with _words_of_notes():
            assessment = _assess_change(plan, context)
        heading, lines = arguments.get("heading"), _added_lines(arguments["text"])
        section = "" if heading is None else f" to its section {one_line(heading)!r}"
        reasons = (f"It adds {pluralize(len(lines), 'line')}{section}.", *assessment.reasons[1:])
        return replace(assessment, question=f"Append to {assessment.path}?", reasons=reasons)

    @tool(risk="write", assess=assess_append)
    async def note_append(
        path: str, text: str, context: ToolContext, heading: str | None = None, vault: str | None = None
    ) -> ToolOutput:
        """Add text to the end of a note, or of one of its sections.

        Args:
            path: The path of the note in its vault, or its name as in [[name]]; the note must exist.
            text: The text to add, as lines of its own.
            heading: Add it to the end of the section with this heading.
            vault: The name of the vault; needed only if there are several.
        """
        arguments = {"path": path, "text": text, "heading": heading, "vault": vault}
        plan = await run_in_thread(plan_append, arguments, context, name="agx vault")
        with _words_of_notes():
            done = await write_file(**plan.arguments, context=plan.context)
        return replace(done, text=f"Appended to{done.text.removeprefix('Overwrote')}")

    return note_write, note_append


def _assess_change(plan: _Write, context: ToolContext) -> Assessment:
    """Return the assessment of writing a note, `elsewhere` unless its vault is the workspace of the session."""
    is_elsewhere = plan.context.workspace.resolve() != context.workspace.resolve()
    return replace(file_write.assess(plan.arguments, plan.context), elsewhere=is_elsewhere)


@dataclass(frozen=True, slots=True)
class _Write:
    """A call of file_write that writes a note: its arguments, and its context with the vault as workspace."""

    arguments: Mapping[str, Any]
    context: ToolContext


@contextmanager
def _words_of_notes() -> Generator[None]:
    """Let errors of file_write speak of the vault, as the model knows nothing of its folder."""
    try:
        yield
    except ToolError as exc:
        words = str(exc).replace("the workspace", "the vault").replace("list_files", "note_list")
        raise ToolError(words) from exc


def _path_to_write(vault: VaultRecord, path: str) -> str:
    """Return the path of a note in its vault; raise `ToolError` for one where the index would see no note."""
    shown, inside = visible_path(path), path
    if path.startswith("/"):
        if not path.startswith(f"{vault.path}/"):
            raise ToolError(f"{shown!r} is outside the vault {vault.name!r}; give a path in it, such as 'Work/Plan.md'")
        inside = path.removeprefix(f"{vault.path}/")
    inside = inside.removeprefix("./")
    if not PurePosixPath(inside).suffix and not inside.endswith("/"):
        inside += ".md"
    if (reason := skip_reason(vault.path, inside)) is not None:
        raise ToolError(f"no note can be at {shown!r}: {reason}; give another path, such as 'Work/Plan.md'")
    return inside


def _existing_path(access: VaultAccess, vault: VaultRecord, path: str) -> str:
    """Return the path of a note that exists, given by path or name; raise `ToolError` if there is none, or several."""
    given = path.removeprefix(f"{vault.path}/").removeprefix("./")
    has_suffix = given.lower().endswith(NOTE_SUFFIXES)
    paths = [given] if has_suffix else [f"{given}{suffix}" for suffix in NOTE_SUFFIXES]
    existing = [each for each in paths if skip_reason(vault.path, each) is None and os.path.isfile(vault.path / each)]
    if len(existing) == 1:
        return existing[0]
    try:
        return access.look_up(vault, lambda index: _find_note(index, given).path)
    except VaultUnreadable as exc:
        raise ToolError(str(exc)) from exc


def _check_content(path: str, content: str) -> None:
    """Raise `ToolError` for a text that the index would not take for a note."""
    encoded = content.encode("utf-8", "replace")
    if len(encoded) > MAX_NOTE_BYTES:
        raise ToolError(f"{path!r} would be larger than {MAX_NOTE_BYTES // 2**20} MiB, the most that a note may have")
    if decode_note(encoded).problem == "binary":
        raise ToolError(f"{path!r} would be no note: its text begins with many control characters; leave them out")


def _appended(root: Path, path: str, text: str, heading: str | None) -> str:
    """Return a note's text with `text` added; raise `ToolError` if there is no such note or section."""
    lines = note_lines(decode_note(read_note(root, path)).text)
    end = len(lines) if heading is None else _section(path, lines, heading)[1]
    while end and not lines[end - 1].strip():
        end -= 1
    rest = lines[end:] if any(line.strip() for line in lines[end:]) else [""]
    return "\n".join([*lines[:end], *_added_lines(text), *rest])


def _added_lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n")
