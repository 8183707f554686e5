"""Texts that are costly to process for regular expressions, parsers and escaping."""

from __future__ import annotations

import json
import random

from tests.linear.case import Make

__all__ = ["JSON", "LINES", "TEXTS", "mixed", "repeated"]


def repeated(piece: str, *, head: str = "", tail: str = "") -> Make:
    """Return a maker that repeats `piece` between `head` and `tail`; its size counts the bytes a provider sends."""
    written = _written_bytes(piece)
    return lambda size: head + piece * (size // written) + tail


def _written_bytes(text: str) -> int:
    """Return the number of bytes that a provider sends for a text; lone surrogates and controls are sent as escapes."""
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "backslashreplace")) - 2


_TOKENS = (
    *(
        "a",
        "word ",
        "\n",
        "\n\n",
        "  ",
        "\t",
        "é",
        "漢",
        "🙂",
        "\u0301",
        "\u202e",
        "\x1b[2K",
        "\x00",
        "\ud800",
        "\ufeff",
    ),
    *("`", "```", "```json\n", "~~~", "<", ">", "</", "<think>", "</think>", "<function=look>", "</function>"),
    *("<parameter=path>", "</parameter>", "<tool_code>", "</tool_code>", "<function_result=", "<tool_call>"),
    *('"', "'", "\\", '\\"', "\\u00e9", "\\ud83d", "{", "}", "[", "]", ":", ",", "null", "1", "-1.5e9", '{"a":1}'),
    *("/", "../", "*", "?", "$HOME", "~", "{a,b}", ";", "|", "&&", "-----BEGIN ", "sk-", "eyJ", "a.a.a", "://", "@"),
)


def mixed(seed: int) -> Make:
    """Return a maker of tokens of all kinds in random order, the same in every run."""

    def make(size: int) -> str:
        chosen = random.Random(f"{seed} {size}")
        return "".join(chosen.choices(_TOKENS, k=size // 5))

    return make


TEXTS: dict[str, Make] = {
    "words": repeated("lorem ipsum dolor "),
    "one word": repeated("a"),
    "dotted word": repeated("a."),
    "hyphens": repeated("eyJ-sk-"),
    "begun secrets": repeated("eyJaaaaaaaa-"),
    "begun keys": repeated("-----BEGIN A "),
    "addresses": repeated("http://a:b"),
    "digits": repeated("1"),
    "lines": repeated("a\n"),
    "empty lines": repeated("\n"),
    "blanks": repeated(" "),
    "blanks in a word": repeated(" ", head="a", tail="a"),
    "lines of blanks": repeated("\n" + " " * 40),
    "tabs": repeated("\t"),
    "controls": repeated("\x1b[2K"),
    "not ASCII": repeated("é漢🙂 "),
    "emoji": repeated("🙂"),
    "accents": repeated("a\u0301"),
    "marks": repeated("\u0301"),
    "directions": repeated("\u202e"),
    "lone surrogates": repeated("\ud800"),
    "quotes": repeated('"'),
    "backslashes": repeated("\\"),
    "escaped quotes": repeated('\\"'),
    "backticks": repeated("`"),
    "backticks apart": repeated("` "),
    "growing backticks": lambda size: " ".join("`" * (place % 90) for place in range(size // 45 + 1))[:size],
    "fences": repeated("```\n"),
    "opened fences": repeated("```json\n{"),
    "closing braces": repeated("}\n", head="```json\n{"),
    "angles": repeated("<"),
    "tags": repeated("<a>"),
    "opened calls": repeated("<function=look>\n"),
    "begun calls": repeated("\n<function="),
    "opened parameters": repeated("<parameter=a>", head="<function=look>"),
    "closed parameters": repeated("<parameter=a></parameter>", head="<function=look>"),
    "begun ends": repeated("</parameter", head="<function=look><parameter=a>"),
    "results": repeated("<function_result"),
    "thoughts": repeated("<think></think>"),
    "begun thoughts": repeated("<think"),
    "opened code": repeated("<tool_code>"),
    "closed code": repeated("</tool_code>", head="<tool_code>"),
    "closed code and blanks": repeated("</tool_code>      ", head="<tool_code>"),
    "opened tool calls": repeated("<tool_call>"),
    "brackets": repeated("["),
    "braces": repeated('{"a":'),
    "globs": repeated("*a"),
    "globs apart": repeated("*a "),
    "brace expansion": repeated("{a,b}"),
    "mixed": mixed(1),
    "mixed, another": mixed(2),
}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


JSON: dict[str, Make] = {
    "a long string": lambda size: _json({"text": "a" * size}),
    "a string with escapes": lambda size: _json({"text": "\n" * (size // 2)}),
    "a string with escaped halves": lambda size: '{"text":"' + "\\ud83d" * (size // 6) + '"}',
    "a string not ASCII": lambda size: _json({"text": "é漢🙂 " * (size // 10)}),
    "a file": lambda size: _json({"path": "a.py", "content": 'print("a, b", [1, 2])\n' * (size // 26)}),
    "numbers": lambda size: _json({"a": [0] * (size // 2)}),
    "long numbers": repeated("9" * 1300 + ",", head='{"a":[', tail="0]}"),
    "numbers that are too long": repeated("9" * 1400 + ",", head='{"a":[', tail="0]}"),
    "one number": repeated("9", head='{"a":', tail="}"),
    "floats": lambda size: _json({"a": [1.5e300] * (size // 8)}),
    "nulls": lambda size: _json({"a": [None] * (size // 5)}),
    "empty lists": lambda size: _json({"a": [[]] * (size // 3)}),
    "objects": lambda size: _json({"a": [{"b": 1}] * (size // 8)}),
    "keys": lambda size: _json({f"key{place}": place for place in range(size // 20)}),
    "the same key": repeated('"a":1,', head="{", tail='"b":1}'),
    "deep lists": lambda size: "[" * (size // 2) + "]" * (size // 2),
    "deep objects": lambda size: '{"a":' * (size // 6) + "1" + "}" * (size // 6),
    "nested": lambda size: _json({"a": [[[[[[[[1]]]]]]]] * (size // 18)}),
    "cut": lambda size: '{"text":"' + "a" * size,
    "cut list": repeated("0,", head='{"a":['),
    "blanks behind": repeated(" ", head="{}"),
    "blanks between": repeated("   ,0", head='{"a":[0', tail="]}"),
    "single quotes": repeated("'a':1,", head="{", tail="'b':1}"),
    "a fence": lambda size: '```json\n{"a":"' + "a" * size + '"}\n```',
    "trailing commas": repeated("[0,],", head='{"a":[', tail="0]}"),
    "bare words": repeated("word ", head="{a: ", tail="}"),
    "backslashes": lambda size: '{"a":"' + "\\" * size + '"}',
    "quotes": lambda size: '{"a":' + '"' * size + "}",
}
"""Texts that a model may write as the arguments of a call: JSON and almost JSON."""

LINES: dict[str, Make] = {
    name: TEXTS[name]
    for name in ("words", "one word", "lines", "empty lines", "blanks", "not ASCII", "controls", "mixed")
}
"""A few of the texts, for functions that only pass texts on."""
