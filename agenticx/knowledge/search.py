"""Search in a vault's index: words, their beginnings, parts of names and meaning, in one ranking."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice

from agenticx.errors import ToolError
from agenticx.knowledge.index import VaultIndex
from agenticx.knowledge.parsing import Passage, PassageSpan, note_lines, passage_sha256
from agenticx.knowledge.words import (
    NOTE_MARK,
    find_tags,
    fold_case,
    index_text,
    match_key,
    query_words,
    tag_key,
    without_tags,
)
from agenticx.tools.patterns import compile_glob

__all__ = ["FoundPassage", "Nearest", "path_filter", "search_notes"]

Nearest = Callable[[Collection[bytes] | None], Sequence[bytes]]
"""A function that returns the passages nearest in meaning to a query, the nearest first, by the SHA-256 of their text.

Its argument limits it to some passages; None for all.
"""


_MAX_QUERY_CHARS = 20_000
"""Of a longer query the beginning and the end count."""
_MAX_NAMED = 20
_MAX_INTEGER = 2**63 - 1
"""The largest number in SQLite; it is in nanoseconds the year 2262."""
_CANDIDATES = 60
_CANDIDATE_NOTES = 20
_LEAST_PREFIX_CHARS = 4
_LEAST_PART_CHARS, _PART_CHARS, _PART_DISTANCE = 3, 5, 3
"""Parts of words are sought in names from every third character on: single trigrams match a third of all notes."""
_RANK_OFFSET = 30
"""The constant of reciprocal rank fusion (Cormack et al., 2009): rank r scores 1 / (offset + r)."""
_NAMES_WEIGHT = 0.1
_MEANING_WEIGHT = 0.5
"""Chosen with all-MiniLM-L6-v2 on the questions of the public vaults: of 52, it finds 2 more of the gold lines."""
_PHRASE = re.compile(r'"([^"\n]{1,400})"')


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """A passage that was found; `score` orders the results of one search, `matched` are the query's words in it."""

    passage: Passage
    score: float
    matched: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Query:
    """A query in its parts: words, phrases that must occur, and notes and tags to which it is limited."""

    words: tuple[str, ...]
    phrases: tuple[str, ...]
    notes: tuple[str, ...]
    tags: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> _Query:
        if len(text) > _MAX_QUERY_CHARS:
            text = f"{text[: _MAX_QUERY_CHARS // 2]} {text[-_MAX_QUERY_CHARS // 2 :]}"
        notes = _first(NOTE_MARK.findall(text))
        rest = NOTE_MARK.sub(" ", text)
        tags = _first(find_tags(rest))
        rest = without_tags(rest)
        phrases = _first(phrase for phrase in _PHRASE.findall(rest) if query_words(phrase))
        return cls(tuple(query_words(rest)), phrases, notes, tags)


def _first(found: Iterable[str]) -> tuple[str, ...]:
    """Return the first distinct ones of what a query names, so that a long text does not make a long search."""
    return tuple(islice(dict.fromkeys(found), _MAX_NAMED))


def search_notes(
    index: VaultIndex,
    query: str,
    *,
    limit: int = 8,
    per_note: int = 2,
    path: str | None = None,
    tags: Iterable[str] = (),
    since: datetime | None = None,
    nearest: Nearest | None = None,
) -> list[FoundPassage]:
    """Return the best passages for a query, at most `per_note` of one note; [] for a query without a word.

    Words are OR-ed, phrases in double quotes must occur; `[[Note]]` and `#tag` in the query limit it to those notes, as
    `path` (a note, a folder, or a glob such as "Work/**") and `tags` do (a tag includes those nested below it). `since`
    leaves out notes that were changed before. Each text is read from its note, so a result is as the note is now; a
    passage that has changed since it was indexed is left out. With `nearest` the passages that it finds are one more
    ranking.
    """
    parsed = _Query.of(query)
    allowed = _allowed_notes(index, parsed, path, tags, since)
    if allowed == []:
        return []
    scores: dict[int, float] = defaultdict(float)
    rankings = chain(_rankings(index, parsed, allowed), _by_meaning(index, parsed, allowed, nearest))
    for weight, ranking in rankings:
        for rank, passages in enumerate(ranking, start=1):
            for passage_id in passages:
                scores[passage_id] += weight / (_RANK_OFFSET + rank)
    return _results(index, parsed.words, scores, limit, per_note)


def _rankings(index: VaultIndex, query: _Query, allowed: list[int] | None) -> Iterator[tuple[float, list[list[int]]]]:
    """Yield rankings with their weights; one rank may have several passages, given by id."""
    required = " AND ".join(_quote(index_text(phrase)) for phrase in query.phrases)
    if not query.words:
        if allowed is not None:  # a filter alone: the beginnings of the notes
            yield 1.0, _first_passages(index, allowed)
        return
    terms = [_quote(word) for word in query.words]
    terms += [f"{_quote(word)}*" for word in query.words if len(word) >= _LEAST_PREFIX_CHARS]
    found = _ranked(index, f"({' OR '.join(terms)})" + (f" AND {required}" if required else ""), allowed)
    yield 1.0, found
    if not required:
        yield _NAMES_WEIGHT, _passages_of_notes(index, _notes_by_name(index, query.words, allowed), found)


def _by_meaning(
    index: VaultIndex, query: _Query, allowed: list[int] | None, nearest: Nearest | None
) -> Iterator[tuple[float, list[list[int]]]]:
    """Yield the ranking by meaning; passages with the same text have one rank."""
    if nearest is None or not query.words:
        return
    conditions: list[str] = []
    parameters: list[str] = []
    if allowed is not None:
        conditions.append("note_id IN (SELECT value FROM json_each(?))")
        parameters.append(json.dumps(allowed))
    if query.phrases:
        conditions.append("+id IN (SELECT rowid FROM words WHERE words MATCH ?)")
        parameters.append(" AND ".join(_quote(index_text(phrase)) for phrase in query.phrases))
    ids: dict[bytes, list[int]] = defaultdict(list)
    for passage_id, sha256 in index.query(
        f"SELECT id, sha256 FROM passages WHERE {' AND '.join(conditions) or 'TRUE'}", parameters
    ):
        ids[sha256].append(passage_id)
    yield _MEANING_WEIGHT, [ids[sha256] for sha256 in nearest(ids.keys() if conditions else None) if sha256 in ids]


def _quote(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


def _ranked(index: VaultIndex, expression: str, allowed: list[int] | None) -> list[list[int]]:
    limited = (
        ""
        if allowed is None
        else " AND (SELECT note_id FROM passages WHERE id = words.rowid) IN (SELECT value FROM json_each(?))"
    )
    rows = index.query(
        f"SELECT rowid FROM words WHERE words MATCH ?{limited} ORDER BY rank LIMIT {_CANDIDATES}",
        (expression,) if allowed is None else (expression, json.dumps(allowed)),
    )
    return [list(row) for row in rows]


def _notes_by_name(index: VaultIndex, words: Iterable[str], allowed: list[int] | None) -> list[int]:
    """Return the notes whose title, headings or path have parts of the words, such as most of a misspelt one."""
    parts = dict.fromkeys(
        word[at : at + _PART_CHARS]
        for word in words
        if len(word) >= _LEAST_PART_CHARS
        for at in range(0, max(len(word) - _PART_CHARS + 1, 1), _PART_DISTANCE)
    )
    if not parts:
        return []
    # Without the plus sign SQLite would run the full-text query again for each row that is allowed.
    limited = "" if allowed is None else " AND +rowid IN (SELECT value FROM json_each(?))"
    expression = " OR ".join(map(_quote, parts))
    rows = index.query(
        f"SELECT rowid FROM names WHERE names MATCH ?{limited} ORDER BY rank LIMIT {_CANDIDATE_NOTES}",
        (expression,) if allowed is None else (expression, json.dumps(allowed)),
    )
    return [note_id for (note_id,) in rows]


def _passages_of_notes(index: VaultIndex, notes: list[int], found: list[list[int]]) -> list[list[int]]:
    """Return for each note its first passage, and those of its passages that are among `found`."""
    rows = index.query(
        "SELECT value, (SELECT min(id) FROM passages WHERE note_id = value) FROM json_each(?) "
        "UNION SELECT note_id, id FROM passages WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(notes), json.dumps([passage_id for ids in found for passage_id in ids])),
    )
    passages: dict[int, list[int]] = {note_id: [] for note_id in notes}
    for note_id, passage_id in rows:
        if note_id in passages:
            passages[note_id].append(passage_id)
    return list(passages.values())


def _first_passages(index: VaultIndex, allowed: list[int]) -> list[list[int]]:
    rows = index.query(
        "SELECT id FROM passages WHERE note_id IN (SELECT value FROM json_each(?)) ORDER BY note_id, id LIMIT ?",
        (json.dumps(allowed), _CANDIDATES),
    )
    return [list(row) for row in rows]


def _allowed_notes(
    index: VaultIndex, query: _Query, path: str | None, tags: Iterable[str], since: datetime | None
) -> list[int] | None:
    """Return the ids of the notes to which a search is limited, or None for all."""
    conditions: list[str] = []
    parameters: list[str | int] = []
    if query.notes:
        paths = [note.path for name in query.notes for note in index.find_notes(name)]
        conditions.append("path IN (SELECT value FROM json_each(?))")
        parameters.append(json.dumps(paths))
    for tag in (*query.tags, *map(tag_key, tags)):
        conditions.append("id IN (SELECT note_id FROM tags WHERE tag = ? OR substr(tag, 1, ?) = ?)")
        parameters += [tag, len(tag) + 1, f"{tag}/"]
    if since is not None:
        conditions.append("mtime_ns >= ?")
        parameters.append(max(min(int(since.timestamp() * 1e9), _MAX_INTEGER), -_MAX_INTEGER))
    if not conditions and path is None:
        return None
    is_wanted = path_filter(index, path or "")
    where = " AND ".join(conditions) or "TRUE"
    rows = index.query(f"SELECT id, path FROM notes WHERE {where}", parameters)
    return [note_id for note_id, note_path in rows if is_wanted(note_path)]


def path_filter(index: VaultIndex, wanted: str) -> Callable[[str], bool]:
    """Return the test of paths for a note, a folder or a glob; raises `ToolError` for a glob that cannot be used."""
    wanted = wanted.removeprefix("./").strip("/")
    if wanted in ("", "."):
        return lambda path: True
    if index.query("SELECT 1 FROM notes WHERE path = ?", (wanted,)):  # not those that differ in suffix or case too
        return lambda path: path == wanted
    if any(sign in wanted for sign in "*?["):
        pattern = compile_glob(wanted if "/" in wanted else f"**/{wanted}")
        return lambda path: pattern.found_in(path)
    key, folder = match_key(wanted), f"{fold_case(wanted)}/"
    return lambda path: match_key(path) == key or fold_case(path).startswith(folder)


def _results(
    index: VaultIndex, words: Sequence[str], scores: Mapping[int, float], limit: int, per_note: int
) -> list[FoundPassage]:
    """Return the passages with the highest scores, read from their notes; ties in the order of the notes' paths."""
    rows = index.query(
        "SELECT passages.id, path, heading, line_start, line_end, cut_start, cut_end, passages.sha256 FROM passages "
        "JOIN notes ON notes.id = note_id WHERE passages.id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(scores)),),
    )
    rows.sort(key=lambda row: (-scores[row[0]], row[1], row[3]))
    of_note: Counter[str] = Counter()
    lines: dict[str, list[str]] = {}
    found: dict[int, Passage] = {}
    for passage_id, path, heading, start, end, cut_start, cut_end, sha256 in rows:
        if len(found) == limit:
            break
        if of_note[path] == per_note:
            continue
        if path not in lines:
            lines[path] = _read_lines(index, path)
        span = PassageSpan(start, end, heading, (), None if cut_start is None else (cut_start, cut_end))
        text = span.text(lines[path])
        if passage_sha256(text) == sha256.hex():  # else it was changed or removed since it was indexed
            of_note[path] += 1
            found[passage_id] = Passage(path, heading, start, end, text, sha256.hex())
    matched = _matched(index, words, found)
    return [FoundPassage(passage, round(scores[key], 6), tuple(matched[key])) for key, passage in found.items()]


def _read_lines(index: VaultIndex, path: str) -> list[str]:
    try:
        return note_lines(index.read(path).text)
    except ToolError:  # removed or replaced meanwhile
        return []


def _matched(index: VaultIndex, words: Sequence[str], found: Mapping[int, Passage]) -> dict[int, list[str]]:
    """Return the words of the query that each passage has, also in another form, such as "lease" for "leases"."""
    texts = {key: index_text(f"{passage.path} {passage.text}").lower() for key, passage in found.items()}
    matched: dict[int, list[str]] = {key: [] for key in found}
    for word in words:
        others = [key for key, text in texts.items() if word not in text]
        rows = index.query(
            "SELECT rowid FROM words WHERE words MATCH ? AND rowid IN (SELECT value FROM json_each(?))",
            (_quote(word), json.dumps(others)),
        )
        for key in found.keys() - others | {key for (key,) in rows}:
            matched[key].append(word)
    return matched
