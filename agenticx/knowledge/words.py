"""The words of notes and queries: terms of the index, and stop words."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterator
from functools import cache

from agenticx.settings import config_text

__all__ = ["index_text", "match_key", "query_words"]

_CJK = (  # radicals, kana, bopomofo, jamo, Han and Hangul
    r"\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    r"\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_CJK_RUN = re.compile(f"[{_CJK}]+")
_WORD = re.compile(rf"[{_CJK}]+|[^\W{_CJK}]+")
_MAX_WORDS = 32


@cache
def _stop_words() -> frozenset[str]:
    languages = tomllib.loads(config_text("stop_words.toml"))["words"].values()
    return frozenset(word for words in languages for word in words.split())


def index_text(text: str) -> str:
    """Return text as it is indexed and searched: normalized (NFKC), runs of Han, kana and Hangul as pairs.

    For example "日本語 text" becomes " 日本 本語  text".
    """
    if text.isascii():
        return text
    return _CJK_RUN.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", unicodedata.normalize("NFKC", text))


def query_words(query: str) -> list[str]:
    """Return the distinct words of a query in lower case, without stop words unless there are no others; 32 at most."""
    words = list(dict.fromkeys(_words(unicodedata.normalize("NFKC", query))))
    return ([word for word in words if word not in _stop_words()] or words)[:_MAX_WORDS]


def match_key(name: str) -> str:
    """Return the form of a note's name or path under which it is found: NFC, without case and without its suffix."""
    key = unicodedata.normalize("NFC", name.strip()).casefold()
    suffix = next((suffix for suffix in (".md", ".markdown", ".txt") if key.endswith(suffix)), "")
    return key.removesuffix(suffix)


def _words(text: str) -> Iterator[str]:
    for match in _WORD.finditer(text):
        if _CJK_RUN.match(match[0]):
            yield from _pairs(match[0])
        else:
            yield match[0].lower()


def _pairs(run: str) -> list[str]:
    return [run[index : index + 2] for index in range(max(len(run) - 1, 1))]
