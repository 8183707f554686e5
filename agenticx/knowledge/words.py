"""The words of notes and queries: terms of the index, and stop words."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterator
from functools import cache

from agenticx.settings import config_text

__all__ = ["NOTE_MARK", "find_tags", "fold_case", "index_text", "match_key", "query_words", "tag_key", "without_tags"]

NOTE_MARK = re.compile(r"\[\[([^\[\]\n|#]{1,400})[^\[\]\n]{0,400}\]\]")
"""A note by its name, as in `[[Lease]]`, `[[Lease#Rent]]` or `[[Lease|the lease]]`; the group is the name."""

_CJK = (  # radicals, kana, bopomofo, jamo, Han and Hangul
    r"\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    r"\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_CJK_RUN = re.compile(f"[{_CJK}]+")
_WORD = re.compile(rf"[{_CJK}]+|[^\W{_CJK}]+")
_MAX_WORDS = 32
_TAG = re.compile(
    r"#(?<![\w#/&=?.%\\]#)(?<!=[\"']#)"  # in this order it is searched for as fast as a plain sign
    r"([^\s\x00-,.:-@\[-^`{-\xa9\xab-\xb4\xb6-\xb9\xbb-\xbf\u2000-\u206f\u3000-\u3004\u3008-\u3020"
    r"\uff01-\uff0f\uff1a-\uff20]{1,200})"
)
"""A number sign and what follows it up to a blank or a punctuation mark other than "/", "-" and "_"."""
_UNTAGGED = re.compile(
    r"\]\([^()\n]{0,1000}\)"  # the target of a link
    r"|\[\[[^\[\]\n]{0,1000}\]\]"
    r"|^[ ]{0,3}\[[^\[\]\n]{1,400}\]:\s{0,10}\S{1,1000}"  # and of a reference
    r"|<[A-Za-z/!][^<>\n]{0,1000}>"
    r"|://\S{1,1000}"
    r"|\{\s{0,10}[#:.][^{}\n]{0,200}\}",  # the id of a heading
    re.MULTILINE,
)
_UNTAGGED_SIGNS = re.compile(r"[\[<{]|\]\(|://")
_COLOUR = re.compile(r"(?=[a-z]*\d)[0-9a-f]+|([a-f])\1+|(?:([a-f])\2){3,4}|([a-f]{2})\3{2,3}|([a-f])\4\4([a-f])\5\5")
"""Hexadecimal digits of a colour: without a decimal digit only those that hardly are a word, such as "fff"."""


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


def fold_case(text: str) -> str:
    """Return text in the form NFC and without case, for comparisons of names and paths."""
    return unicodedata.normalize("NFC", text).casefold()


def match_key(name: str) -> str:
    """Return the form of a note's name or path under which it is found: NFC, without case and without its suffix."""
    key = fold_case(name.strip())
    suffix = next((suffix for suffix in (".md", ".markdown", ".txt") if key.endswith(suffix)), "")
    return key.removesuffix(suffix)


def find_tags(text: str) -> list[str]:
    """Return the tags of a text in lower case, without "#": none in targets of links, HTML tags, URLs and colours."""
    if _TAG.search(text) is None:
        return []
    text = unicodedata.normalize("NFC", text)
    if _UNTAGGED_SIGNS.search(text) is not None:
        text = _UNTAGGED.sub(" ", text)
    found = (_tag_name(match) for match in _TAG.finditer(text))
    return [tag for tag in found if tag is not None]


def tag_key(tag: str) -> str:
    """Return the form of a tag under which it is found: NFC, in lower case, without "#" and outer "/"."""
    return unicodedata.normalize("NFC", tag.strip().removeprefix("#").strip("/")).lower()


def without_tags(text: str) -> str:
    """Return a query without its tags; what only looks like one, such as a colour, stays."""
    return _TAG.sub(lambda match: match[0] if _tag_name(match) is None else " ", text)


def _tag_name(match: re.Match[str]) -> str | None:
    """Return the name of a tag, None if it is a number or a colour, or has no letter or digit at all."""
    name = match[1].strip("/").lower()
    is_name = not name.isdigit() and any(sign.isalnum() or ord(sign) > 127 for sign in name)
    is_colour = len(name) in (3, 4, 6, 8) and _COLOUR.fullmatch(name) is not None
    return name if is_name and not is_colour else None


def _words(text: str) -> Iterator[str]:
    for match in _WORD.finditer(text):
        if _CJK_RUN.match(match[0]):
            yield from _pairs(match[0])
        else:
            yield match[0].lower()


def _pairs(run: str) -> list[str]:
    return [run[index : index + 2] for index in range(max(len(run) - 1, 1))]
