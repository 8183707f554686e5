"""The full-text index of a vault, in one SQLite file."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from agenticx.errors import ToolError
from agenticx.knowledge.cache_file import CacheFile, DamagedFile, transaction
from agenticx.knowledge.parsing import ParsedNote, PassageSpan, note_lines, parse_note, passage_sha256
from agenticx.knowledge.registry import VaultUnreadable
from agenticx.knowledge.vault import (
    NOTE_SUFFIXES,
    NoteContent,
    NoteProblem,
    NoteVersion,
    VaultMissing,
    VaultScan,
    decode_note,
    read_note,
    scan_vault,
    skip_reason,
)
from agenticx.knowledge.words import fold_case, index_text, match_key
from agenticx.tools.visible import visible

__all__ = ["IndexState", "NoteRecord", "VaultIndex"]

_VERSION = 8
_CONDITIONS = (
    "path_key = ?",
    "name_key = ?",
    "id IN (SELECT note_id FROM aliases WHERE name_key = ?)",
    "path_key LIKE '%/' || ? ESCAPE '\\'",
)
"""How a note is found by its name, the best first."""
_DOTS = ("./", "../")
_BATCH_NOTES = 1_000
_MAX_UNINDEXED = 50
_BATCH_CHARS = 4 * 1024 * 1024
_MOST_RUNS = 3
_ROOM = ("cache_size = -16000", "wal_autocheckpoint = 2000")
"""16 MB each for pages in memory and for the log: with SQLite's 2 and 4 MB, a run reads and writes pages repeatedly."""
_UNSETTLED_NS = 2_000_000_000
"""A file that changed this shortly before it was read may change again without a new modification time (2 s on FAT)."""

# FTS5 keeps no texts: what it needs to remove a passage is made again from the text of the note.
_SCHEMA = """
CREATE TABLE notes(
    id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, path_key TEXT NOT NULL, name_key TEXT NOT NULL,
    title TEXT NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, inode INTEGER NOT NULL,
    is_settled INTEGER NOT NULL, sha256 BLOB NOT NULL, problem TEXT, structure TEXT NOT NULL
);
CREATE TABLE texts(note_id INTEGER PRIMARY KEY, text BLOB NOT NULL);
CREATE INDEX notes_by_name ON notes(name_key);
CREATE INDEX notes_by_path ON notes(path_key);
CREATE TABLE aliases(name_key TEXT, note_id INTEGER, PRIMARY KEY(name_key, note_id)) WITHOUT ROWID;
CREATE INDEX aliases_by_note ON aliases(note_id);
CREATE TABLE tags(tag TEXT, note_id INTEGER, PRIMARY KEY(tag, note_id)) WITHOUT ROWID;
CREATE INDEX tags_by_note ON tags(note_id);
CREATE TABLE links(target_key TEXT, note_id INTEGER, PRIMARY KEY(target_key, note_id)) WITHOUT ROWID;
CREATE INDEX links_by_note ON links(note_id);
CREATE TABLE passages(
    id INTEGER PRIMARY KEY, note_id INTEGER NOT NULL, heading TEXT, headings TEXT NOT NULL,
    line_start INTEGER NOT NULL, line_end INTEGER NOT NULL, cut_start INTEGER, cut_end INTEGER, sha256 BLOB NOT NULL
);
CREATE INDEX passages_by_note ON passages(note_id);
CREATE VIRTUAL TABLE words USING fts5(
    title, heading, path, body, tokenize = 'porter unicode61 remove_diacritics 2', content = ''
);
INSERT INTO words(words, rank) VALUES ('rank', 'bm25(2.0, 2.0, 0.5, 1.0)');
CREATE VIRTUAL TABLE names USING fts5(title, heading, path, tokenize = 'trigram', content = '');
CREATE TABLE state(name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class IndexState:
    """The notes that are indexed now, and all that the last scan of the folder found.

    `is_scanned` is False until the folder has been scanned for the first time; then more notes may be there.
    """

    indexed: int
    total: int
    is_scanned: bool = True


@dataclass(frozen=True, slots=True)
class NoteRecord:
    """The entry of a note in the index; its `structure` is that of `parsing.ParsedNote`."""

    path: str
    title: str
    sha256: str
    size: int
    mtime_ns: int
    problem: str | None
    structure: dict[str, Any] = field(repr=False)


class VaultIndex:
    """The index of the notes below a folder, in one SQLite file.

    It is a cache: a file that is damaged, of another version or of another folder is made anew; `was_rebuilt` is True
    then. All methods block and may be called from any thread; they raise `VaultUnreadable`, or `UnknownVault` once the
    folder of the file is removed. One `refresh` runs at a time, also among processes; meanwhile searches read the
    committed state. Notes on the disk that are not indexed yet are already found by path and name.
    """

    def __init__(self, root: Path, file: Path) -> None:
        self.root = root
        self._refreshing = threading.Lock()
        self._scan_problems: dict[str, NoteProblem] = {}
        self._total = 0
        self._was_scanned = False
        self._is_behind = True
        self._waiting: dict[str, NoteVersion] = {}  # notes to be indexed
        self._waiting_by_key: dict[str, list[str]] = {}
        self._complete_generation = 0
        pragmas = ("page_size = 8192", "journal_mode = WAL", "synchronous = NORMAL", *_ROOM)
        self._file = CacheFile(file, "index", lambda connection: _prepare(connection, root), pragmas)

    @property
    def was_rebuilt(self) -> bool:
        """True if the file was damaged or old, so that it was made anew."""
        return self._file.was_rebuilt

    @property
    def is_complete(self) -> bool:
        """True if the last `refresh` of the file that is open has reached its end."""
        return self._complete_generation == self._file.generation

    def close(self) -> None:
        """Close the file; nothing of the index may be used afterwards."""
        with self._refreshing:
            self._file.close()

    # --- keeping it up to date ----------------------------------------------------------------------------------------

    def refresh(
        self,
        *,
        stopped: Callable[[], bool] = lambda: False,
        report: Callable[[IndexState], None] = lambda state: None,
    ) -> IndexState:
        """Scan the folder and index what has changed, the latest changes first; return the state at the end.

        `stopped` is asked, and `report` is called, after each batch of up to 1,000 notes, which is one transaction; a
        run that was stopped or killed is continued by the next. Raises `VaultMissing` if the folder cannot be listed or
        has become empty, `VaultUnreadable` if nothing can be written; the index keeps its last state then.
        """
        with self._refreshing:
            self._is_behind = True
            scan = scan_vault(self.root)
            for _ in range(_MOST_RUNS):  # again if the file was damaged, or replaced meanwhile
                try:
                    if not self._run(scan, stopped, report):
                        break
                except DamagedFile:
                    continue
                state = self.state()
                if self.is_complete:
                    return state
            return self.state()

    def _run(self, scan: VaultScan, stopped: Callable[[], bool], report: Callable[[IndexState], None]) -> bool:
        """Index what has changed; return False if that was stopped."""
        known, generation = self._file.use(lambda connection: (_known_versions(connection), self._file.generation))
        if known and not scan.notes and not _has_entries(self.root):
            raise VaultMissing(
                f"the vault's folder {visible(str(self.root))!r} is empty now; its index is kept until notes "
                "are there again, or the vault is removed"
            )
        self._was_scanned = True
        self._scan_problems, self._total = scan.problems, len(scan.notes)
        changed = [path for path, version in scan.notes.items() if known.get(path) != version]
        changed.sort(key=lambda path: scan.notes[path][1], reverse=True)
        gone = known.keys() - scan.notes.keys()
        self._complete_generation = 0
        self._wait_for(changed, scan)
        try:
            if (changed or gone) and not self._store_changes(scan, changed, gone, stopped, report):
                return False
        except DamagedFile:
            raise
        except VaultUnreadable:
            if gone or self._differ(changed):
                raise
        self._complete_generation = generation
        self._is_behind = False
        self._wait_for([], scan)
        return True

    def _store_changes(
        self,
        scan: VaultScan,
        changed: Sequence[str],
        gone: Iterable[str],
        stopped: Callable[[], bool],
        report: Callable[[IndexState], None],
    ) -> bool:
        with self._file.changing() as connection:
            self._remove(connection, gone)
            for batch in self._read_batches(scan, changed):
                with transaction(connection):
                    batch.write(connection)
                for path in batch.paths:
                    self._waiting.pop(path, None)
                report(self.state())
                if stopped():
                    return False
        return True

    def _differ(self, paths: Iterable[str]) -> bool:
        """Return whether the content of a note is another than the indexed one."""
        known = dict(self.query("SELECT path, sha256 FROM notes"))
        for path in paths:
            try:
                content = decode_note(read_note(self.root, path))
            except ToolError:
                continue
            if known.get(path) != bytes.fromhex(content.sha256):
                return True
        return False

    def state(self) -> IndexState:
        """Return how much is indexed."""
        ((indexed, binaries),) = self.query(
            "SELECT count(*) FILTER (WHERE problem IS NOT 'binary'), count(*) FILTER (WHERE problem IS 'binary') "
            "FROM notes"
        )
        return IndexState(indexed, max(self._total - binaries, indexed), self._was_scanned)

    def problems(self) -> dict[str, NoteProblem]:
        """Return the files that are skipped and the defects of notes that are indexed, by path in order."""
        rows = self.query("SELECT path, problem FROM notes WHERE problem IS NOT NULL")
        problems: dict[str, NoteProblem] = {**self._scan_problems}
        for path, problem in rows:
            problems[path] = problem
        return dict(sorted(problems.items()))

    # --- reading ------------------------------------------------------------------------------------------------------

    def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT."""
        return self._file.use(lambda connection: connection.execute(statement, parameters).fetchall())

    def version(self) -> tuple[int, int]:
        """Return what changes with the content of the index."""
        ((version,),) = self.query("PRAGMA data_version")
        return self._file.generation, version

    def find_notes(self, name: str) -> list[NoteRecord]:
        """Return the notes that a name or path means, as in `[[name]]`: by path, else by file name, else by alias.

        If names differ only in case, suffix or Unicode form, exact matches win: "todo.md" does not mean "todo.txt", and
        "todo" means both. A file name alone means the notes of that name in all folders.
        """
        is_file_name = "/" not in name.strip().removeprefix("./") and match_key(name) == match_key(f"{name.strip()}.md")
        return self._find(name, _CONDITIONS[1:] if is_file_name else _CONDITIONS)

    def notes_at(self, path: str) -> list[NoteRecord]:
        """Return what `find_notes` does, but the one at that very path if there is one."""
        return self._find(path, _CONDITIONS)

    def linked_notes(self, path: str, name: str) -> list[NoteRecord]:
        """Return the notes to which the link `name` in the note at `path` leads.

        A path is relative to the note's folder, as in Markdown. A path without a match there, unless it begins with
        dots, and a name are looked up as `find_notes` does.
        """
        from_folder = _from_folder(path, name)
        notes = [] if from_folder is None else self._find(from_folder, _CONDITIONS[:1])
        return notes if notes or name.startswith(_DOTS) else self.notes_at(name)

    def _find(self, name: str, conditions: Sequence[str]) -> list[NoteRecord]:
        if "\0" in name:  # LIKE compares what is before it
            return []
        key = match_key(name).removeprefix("./").strip("/")
        written = name.strip().removeprefix("./").strip("/")
        for condition in conditions:
            wanted = _escape_like(key) if "LIKE" in condition else key
            notes = self._notes(condition, (wanted,))
            if self._is_behind and condition in ("path_key = ?", "name_key = ?"):
                notes += self._unindexed(key, written, {note.path for note in notes}, is_path=condition[0] == "p")
            if notes:
                return _written_so(notes, written)
        return []

    def all_notes(self) -> list[NoteRecord]:
        """Return all notes, ordered by path."""
        return self._notes("TRUE", ())

    def backlinks(self, note: NoteRecord) -> list[str]:
        """Return the paths of the notes that link to `note`, by a path, its name or an alias, in order."""
        parts = match_key(note.path).split("/")
        keys = {"/".join(parts[at:]) for at in range(len(parts))} | set(map(match_key, note.structure["aliases"]))
        rows = self.query(
            "SELECT path, structure FROM notes WHERE id IN (SELECT note_id FROM links WHERE target_key IN "
            "(SELECT value FROM json_each(?))) AND path <> ? ORDER BY path",
            (json.dumps(list(keys)), note.path),
        )
        by_name: dict[str, bool] = {}
        return [path for path, structure in rows if self._links_to(note, path, json.loads(structure), keys, by_name)]

    def _links_to(
        self, note: NoteRecord, path: str, structure: Mapping[str, Any], keys: set[str], by_name: dict[str, bool]
    ) -> bool:
        """Return whether a link with one of the keys leads from `path` to `note`; `by_name` has the names seen."""
        for name in (*structure["links"], *structure["embeds"]):
            if keys.isdisjoint(_target_keys(path, name)):
                continue
            if _from_folder(path, name) is not None:
                leads_to_it = any(target.path == note.path for target in self.linked_notes(path, name))
            else:
                if name not in by_name:
                    by_name[name] = any(target.path == note.path for target in self.linked_notes(path, name))
                leads_to_it = by_name[name]
            if leads_to_it:
                return True
        return False

    def read(self, path: str) -> NoteContent:
        """Return the content of a note as it is on the disk now; raises `ToolError` if it is gone or no note."""
        return decode_note(read_note(self.root, path))

    def passage_texts(self, ids: Sequence[int]) -> dict[bytes, str]:
        """Return the texts of passages as they were indexed, by their SHA-256."""
        rows = self.query(
            "SELECT heading, line_start, line_end, cut_start, cut_end, sha256, note_id FROM passages "
            "WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        )
        lines: dict[int, list[str]] = {}
        texts: dict[bytes, str] = {}
        for heading, line_start, line_end, cut_start, cut_end, sha256, note_id in rows:
            if note_id not in lines:
                found = self.query("SELECT text FROM texts WHERE note_id = ?", (note_id,))
                lines[note_id] = note_lines(found[0][0].decode()) if found else []
            span = PassageSpan(line_start, line_end, heading, (), None if cut_start is None else (cut_start, cut_end))
            texts[sha256] = span.text(lines[note_id])
        return texts

    def _wait_for(self, paths: Sequence[str], scan: VaultScan) -> None:
        """Remember the notes that are to be indexed, by path and by the keys under which they are found."""
        by_key: dict[str, list[str]] = {}
        for path in paths:
            key = match_key(path)
            for each in {key, key.rpartition("/")[2]}:
                by_key.setdefault(each, []).append(path)
        self._waiting_by_key = by_key
        self._waiting = {path: scan.notes[path] for path in paths}

    def _unindexed(self, key: str, written: str, known: set[str], *, is_path: bool) -> list[NoteRecord]:
        """Return the notes with this path or name that are on the disk and not indexed yet, as they are now.

        A path is looked up on the disk too, since a scan may not have reached it.
        """
        waiting = self._waiting
        paths = [path for path in self._waiting_by_key.get(key, ()) if path in waiting]
        if is_path:
            paths = [path for path in paths if match_key(path) == key]
            paths += [path for path in (written, *(f"{written}{suffix}" for suffix in NOTE_SUFFIXES)) if path]
        found = (self._read_record(path) for path in list(dict.fromkeys(paths))[:_MAX_UNINDEXED] if path not in known)
        return [note for note in found if note is not None]

    def _read_record(self, path: str) -> NoteRecord | None:
        """Return the entry that a note on the disk would have, None if there is no such note."""
        if skip_reason(self.root, path) is not None:
            return None
        try:
            status = os.lstat(self.root / path)
            content = decode_note(read_note(self.root, path))
        except (ToolError, OSError, ValueError):
            return None
        if content.problem == "binary":
            return None
        note = parse_note(path, content.text)
        return NoteRecord(
            path,
            note.title,
            content.sha256,
            status.st_size,
            status.st_mtime_ns,
            content.problem or ("frontmatter" if note.frontmatter_is_broken else None),
            json.loads(_encode_json(_structure(note))),
        )

    def _notes(self, condition: str, parameters: Sequence[Any]) -> list[NoteRecord]:
        rows = self.query(
            "SELECT path, title, sha256, size, mtime_ns, problem, structure FROM notes "
            f"WHERE problem IS NOT 'binary' AND {condition} ORDER BY path",
            parameters,
        )
        return [
            NoteRecord(path, title, sha256.hex(), size, mtime_ns, problem, json.loads(structure))
            for path, title, sha256, size, mtime_ns, problem, structure in rows
        ]

    # --- changes ------------------------------------------------------------------------------------------------------

    def _remove(self, connection: sqlite3.Connection, paths: Iterable[str]) -> None:
        paths = sorted(paths)
        for start in range(0, len(paths), _BATCH_NOTES):
            with transaction(connection):
                for path in paths[start : start + _BATCH_NOTES]:
                    _delete(connection, path)

    def _read_batches(self, scan: VaultScan, paths: Sequence[str]) -> Iterator[_Batch]:
        """Yield the notes at `paths` in batches, each with the version that was read."""
        batch = _Batch()
        for path in paths:
            now = time.time_ns()
            try:
                content = decode_note(read_note(self.root, path))
            except ToolError:  # removed meanwhile, or not readable
                self._scan_problems[path] = "unreadable"
                self._total -= 1
                continue
            version = scan.notes[path]
            batch.add(path, _Stored(version, content, is_settled=version[1] < now - _UNSETTLED_NS))
            if len(batch.paths) == _BATCH_NOTES or batch.chars > _BATCH_CHARS:
                yield batch
                batch = _Batch()
        if batch.paths:
            yield batch


@dataclass(frozen=True, slots=True)
class _Stored:
    """The version of a note as its folder showed it before it was read, and what was read."""

    version: NoteVersion
    content: NoteContent
    is_settled: bool


def _prepare(connection: sqlite3.Connection, root: Path) -> bool:
    """Create the tables in an empty file; return False if the file is damaged, of another version or folder."""
    wanted = {
        "version": str(_VERSION),
        "root": os.fsdecode(root),
        "sqlite": sqlite3.sqlite_version,
        "unicode": unicodedata.unidata_version,  # terms of a passage are made again to remove them
    }
    if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,):
        with transaction(connection):
            for statement in _SCHEMA.split(";\n"):
                connection.execute(statement)
            connection.executemany("INSERT INTO state VALUES (?, ?)", wanted.items())
    found = dict(connection.execute("SELECT name, value FROM state"))
    return found == wanted and connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)


def _known_versions(connection: sqlite3.Connection) -> dict[str, NoteVersion | None]:
    """Return the indexed versions by path: None for a note that must be read again in any case."""
    rows = connection.execute("SELECT path, size, mtime_ns, inode, is_settled FROM notes")
    return {path: (size, mtime, inode) if settled else None for path, size, mtime, inode, settled in rows}


def _has_entries(root: Path) -> bool:
    with os.scandir(root) as entries:
        return next(entries, None) is not None


def _target_keys(path: str, name: str) -> set[str]:
    """Return the keys of what a link in the note at `path` may lead to."""
    names = (_from_folder(path, name), None if name.startswith(_DOTS) else name)
    return {match_key(each).strip("/") for each in names if each is not None}


def _from_folder(path: str, name: str) -> str | None:
    """Return the path to which a relative path in the note at `path` leads; None for a name or an absolute path."""
    if name.startswith("/") or not (name.startswith(_DOTS) or name.lower().endswith(NOTE_SUFFIXES)):
        return None
    parts = path.split("/")[:-1]
    for part in name.split("/"):
        if part == ".." and not parts:
            return None
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _written_so(notes: list[NoteRecord], name: str) -> list[NoteRecord]:
    """Return the notes with exactly this path or file name, else those equal to it but for Unicode form, or case too.

    All of them if none is, as for a name without its suffix.
    """
    if len(notes) > 1:
        for form in (str, _composed, fold_case):
            wanted = form(name)
            if same := [note for note in notes if f"/{form(note.path)}".endswith(f"/{wanted}")]:
                return same
    return notes


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _escape_like(text: str) -> str:
    return re.sub(r"[\\%_]", r"\\\g<0>", text)


def _delete(connection: sqlite3.Connection, path: str) -> None:
    row = connection.execute("SELECT id, title, structure, problem FROM notes WHERE path = ?", (path,)).fetchone()
    if row is None:
        return
    note_id, title, structure, problem = row
    if problem != "binary":
        fields = json.loads(structure)
        names = _names(path, title, fields["aliases"])
        connection.execute(
            "INSERT INTO names(names, rowid, title, heading, path) VALUES ('delete', ?, ?, ?, ?)",
            (note_id, names, " ".join(fields["headings"]), path),
        )
        ((text,),) = connection.execute("SELECT text FROM texts WHERE note_id = ?", (note_id,))
        lines = note_lines(text.decode())
        passages = connection.execute(
            "SELECT id, heading, headings, line_start, line_end, cut_start, cut_end FROM passages WHERE note_id = ?",
            (note_id,),
        ).fetchall()
        for passage_id, heading, headings, line_start, line_end, cut_start, cut_end in passages:
            span = PassageSpan(line_start, line_end, heading, (), None if cut_start is None else (cut_start, cut_end))
            connection.execute(
                "INSERT INTO words(words, rowid, title, heading, path, body) VALUES ('delete', ?, ?, ?, ?, ?)",
                (passage_id, *map(index_text, (names, headings, path, span.text(lines)))),
            )
    for table in ("texts", "passages", "aliases", "tags", "links"):
        connection.execute(f"DELETE FROM {table} WHERE note_id = ?", (note_id,))
    connection.execute("DELETE FROM notes WHERE id = ?", (note_id,))


class _Batch:
    """New and changed notes, which are written in one transaction: one statement for each table.

    Their rows are made as the notes are read, and are tuples of plain values, which the garbage collector does not
    follow: hundreds of parsed notes would set off full collections, which stop all threads of the program.
    """

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.chars = 0
        self._files: list[tuple[int, int, int, bool]] = []
        self._hashes: list[bytes] = []
        self._rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in _INSERTS}
        self._passages = 0

    def add(self, path: str, stored: _Stored) -> None:
        """Add a note, whose id and those of its passages count from 1 in this batch."""
        content, note = stored.content, None
        if content.problem != "binary":
            note = parse_note(path, content.text)
        file = (*stored.version, stored.is_settled)
        sha256 = bytes.fromhex(content.sha256)
        self.paths.append(path)
        self.chars += len(content.text)
        self._files.append(file)
        self._hashes.append(sha256)
        names = (path, match_key(path), match_key(PurePosixPath(path).name), note.title if note else path)
        problem = content.problem or ("frontmatter" if note is not None and note.frontmatter_is_broken else None)
        structure = _encode_json({} if note is None else _structure(note))
        self._rows["notes"].append((len(self.paths), *names, *file, sha256, problem, structure))
        if note is not None:
            self._add_text(path, note)

    def _add_text(self, path: str, note: ParsedNote) -> None:
        note_id, rows = len(self.paths), self._rows
        rows["texts"].append((note_id, "\n".join(note.lines).encode()))
        rows["aliases"] += ((note_id, match_key(alias)) for alias in note.aliases)
        rows["tags"] += ((note_id, tag) for tag in note.tags)
        targets = (key for name in (*note.links, *note.embeds) for key in _target_keys(path, name))
        rows["links"] += ((note_id, key) for key in targets)
        names = _names(path, note.title, note.aliases)
        rows["names"].append((note_id, names, " ".join(note.headings), path))
        indexed_names, indexed_path = index_text(names), index_text(path)
        for span in note.passages or (PassageSpan(1, 1, None, ()),):  # an empty note is found by its title
            self._passages += 1
            text, headings = span.text(note.lines), " ".join(span.headings)
            place = (span.heading, headings, span.line_start, span.line_end, *(span.cut or (None, None)))
            sha256 = bytes.fromhex(passage_sha256(text))
            rows["passages"].append((note_id, self._passages, *place, sha256))
            indexed = (indexed_names, index_text(headings), indexed_path, index_text(text))
            rows["words"].append((note_id, self._passages, *indexed))

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the notes in place of what the index has of them; those of unchanged content keep their passages."""
        known = {
            path: (note_id, sha256)
            for path, note_id, sha256 in connection.execute(
                "SELECT path, id, sha256 FROM notes WHERE path IN (SELECT value FROM json_each(?))",
                (json.dumps(self.paths),),
            )
        }
        unchanged: set[int] = set()
        for number, (path, file, sha256) in enumerate(zip(self.paths, self._files, self._hashes, strict=True), start=1):
            if path not in known:
                continue
            note_id, known_sha256 = known[path]
            if known_sha256 == sha256:
                unchanged.add(number)
                connection.execute(
                    "UPDATE notes SET size = ?, mtime_ns = ?, inode = ?, is_settled = ? WHERE id = ?", (*file, note_id)
                )
            else:
                _delete(connection, path)
        ((last_note,),) = connection.execute("SELECT coalesce(max(id), 0) FROM notes")
        ((last_passage,),) = connection.execute("SELECT coalesce(max(id), 0) FROM passages")
        for table, statement in _INSERTS.items():
            rows = self._rows[table]
            if unchanged:
                rows = [row for row in rows if row[0] not in unchanged]
            connection.executemany(statement.format(note=last_note, passage=last_passage), rows)


_encode_json = json.JSONEncoder(ensure_ascii=False).encode
_INSERTS = {
    "notes": "INSERT INTO notes(id, path, path_key, name_key, title, size, mtime_ns, inode, is_settled, sha256, "
    "problem, structure) VALUES ({note} + ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "texts": "INSERT INTO texts VALUES ({note} + ?, ?)",
    "aliases": "INSERT OR IGNORE INTO aliases(note_id, name_key) VALUES ({note} + ?, ?)",
    "tags": "INSERT OR IGNORE INTO tags(note_id, tag) VALUES ({note} + ?, ?)",
    "links": "INSERT OR IGNORE INTO links(note_id, target_key) VALUES ({note} + ?, ?)",
    "names": "INSERT INTO names(rowid, title, heading, path) VALUES ({note} + ?, ?, ?, ?)",
    "passages": "INSERT INTO passages(note_id, id, heading, headings, line_start, line_end, cut_start, cut_end, "
    "sha256) VALUES ({note} + ?, {passage} + ?, ?, ?, ?, ?, ?, ?, ?)",
    "words": "INSERT INTO words(rowid, title, heading, path, body) VALUES ({passage} + ?2, ?3, ?4, ?5, ?6)",
}
"""The statements that write a batch, whose ids count from the last ones of the index."""


def _structure(note: ParsedNote) -> dict[str, Any]:
    return {
        "headings": note.headings,
        "tags": note.tags,
        "aliases": note.aliases,
        "links": note.links,
        "embeds": note.embeds,
        "block_ids": note.block_ids,
    }


def _names(path: str, title: str, aliases: Iterable[str]) -> str:
    """Return the names of a note for its search: file name, title and aliases."""
    return " ".join(dict.fromkeys((PurePosixPath(path).stem, title, *aliases)))
