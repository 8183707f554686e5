"""Incremental reading of the JSON arguments of a call, for previews while the model writes them.

1. What is read is what `parse_arguments` will return: a string grows, every other value appears once it is complete,
   and nothing that was shown is withdrawn or replaced.
2. Text that `parse_arguments` will refuse freezes the arguments where it stops being an object: a repeated key, text
   after the object, a value beyond the limits.
3. The result does not depend on where the text is cut into pieces.
4. A piece is only stored when it is added. It is read, with others, when somebody looks, so that a consumer who looks
   ten times a second does not pay for each token.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from agenticx.llms.reply_limits import MAX_DEPTH, MAX_DIGITS, MAX_VALUES
from agenticx.messages import clean_text

__all__ = ["GrowingArguments"]

_MAX_UNREAD_PIECES = 4096
_CHUNK_CHARS = 64 * 1024  # of a string, read by one match

_BLANKS = re.compile(r"[ \t\r\n]*+")
_STRING_PART = re.compile(r'[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*')
_PLAIN_STRING = re.compile(r'"([^"\\\x00-\x1f]*+)"')
_PLAIN_KEY = re.compile(_PLAIN_STRING.pattern + r"[ \t\r\n]*+:")
_CUT_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_NUMBER = re.compile(r"(?P<integer>-?(?:0|[1-9][0-9]*+))(?P<more>(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?)")
_WHOLE_NUMBER = re.compile(_NUMBER.pattern + r"(?=[ \t\r\n,\]}])")
_CUT_NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]*+)(?:\.(?:[0-9]++)?)?(?:(?<=[0-9])[eE](?:[-+]?[0-9]*+))?)?")
_NUMBER_PART = re.compile(r"[-+.eE0-9]*+")
_MORE_DIGITS = re.compile(r"(?<=[0-9][0-9])[0-9]+")
_NUMBER_ENDS = " \t\r\n,]}"
_LITERALS: dict[str, tuple[str, bool | None]] = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}
_NOTHING = object()

_Step = Callable[["GrowingArguments", str, int], int]
"""Reads some of a text from a position on, and returns the position behind it."""


class GrowingArguments(Mapping[str, Any]):
    r"""The members of a call's arguments that were received so far; the last string may still be growing.

    `add` takes the next `arguments_delta`; the time for all pieces is linear in their characters. Strings are decoded
    and never end in half a character; lone surrogates become U+FFFD. Lists, objects, numbers, `true`, `false` and
    `null` appear when they are complete.

    >>> arguments = GrowingArguments()
    >>> arguments.add('{"path": "index.html", "content": "<p>caf\\u00')
    >>> dict(arguments), arguments.open_key
    ({'path': 'index.html', 'content': '<p>caf'}, 'content')
    >>> arguments.add('e9</p>"}')
    >>> arguments.text_from("content", 6), arguments.open_key, arguments.is_closed
    ('é</p>', None, True)
    """

    def __init__(self) -> None:
        self._unread: list[str] = []
        self._rest = ""  # the beginning of an escape or literal, at the end of what was read
        self._read_next: _Step = GrowingArguments._read_start  # unbound: a bound method would make a reference cycle
        self._members: dict[str, Any] = {}
        self._containers: list[dict[str, Any] | list[Any]] = []
        self._keys: list[str] = []  # of the member being read, for each container; "" in lists
        self._open_key: str | None = None
        self._text: _GrowingText | None = None
        self._is_text_key = False
        self._half = ""  # a high surrogate at the end of `_text` that waits for its partner
        self._number_parts: list[str] = []
        self._number_shape = ""
        self._values = 1
        self._is_closed = self._is_broken = self._is_ended = False
        self._repeated_key: str | None = None

    def add(self, delta: str) -> None:
        """Append the next piece of the text; it is ignored once the text has stopped being one JSON object."""
        self._unread.append(delta)
        if len(self._unread) >= _MAX_UNREAD_PIECES:
            self._read()

    def end(self) -> None:
        """Note that the call is complete and no piece follows; see `is_complete`."""
        self._is_ended = True

    @property
    def open_key(self) -> str | None:
        """The key of the member that is being received, from the end of the key to the end of its value; else None."""
        self._read()
        return self._open_key

    @property
    def is_closed(self) -> bool:
        """True once the closing brace of the object was read; text may follow that makes it invalid."""
        self._read()
        return self._is_closed

    @property
    def is_complete(self) -> bool:
        """True if the text has ended and is one JSON object; text without any character is the object `{}`."""
        self._read()
        is_object = self._is_closed or self._read_next is GrowingArguments._read_start
        return self._is_ended and is_object and not self._is_broken

    @property
    def is_broken(self) -> bool:
        """True once `parse_arguments` will refuse the text, whatever follows; nothing changes from then on."""
        self._read()
        return self._is_broken

    @property
    def repeated_key(self) -> str | None:
        """The key that appeared twice in one object, if that is what broke the text."""
        self._read()
        return self._repeated_key

    def length(self, key: str) -> int:
        """Return the number of characters (code points) of a string so far; raise `KeyError` if there is none."""
        self._read()
        text = self._string(key)
        return text.length if isinstance(text, _GrowingText) else len(text)

    def text_from(self, key: str, offset: int) -> str:
        """Return a string from a character on, without copying what comes before; raise `KeyError` if there is none."""
        if offset < 0:
            raise ValueError(f"the offset {offset!r} is negative; it counts characters from the start of the string")
        self._read()
        text = self._string(key)
        return text.text_from(offset) if isinstance(text, _GrowingText) else text[offset:]

    def to_dict(self) -> dict[str, Any]:
        """Return a copy of the members, with the parts of lists and objects that were received so far."""
        self._read()
        value: Any = _NOTHING if self._text is None or self._is_text_key else self._text.whole()
        for container, key in zip(reversed(self._containers), reversed(self._keys), strict=True):
            if isinstance(container, list):
                value = [*container] if value is _NOTHING else [*container, value]
            else:
                value = {**container} if value is _NOTHING else {**container, key: value}
        return cast("dict[str, Any]", value) if self._containers else dict(self._members)

    def __getitem__(self, key: str) -> Any:
        self._read()
        if self._has_open_string and key == self._keys[0]:
            return cast(_GrowingText, self._text).whole()
        return self._members[key]

    def __contains__(self, key: object) -> bool:
        self._read()
        return key in self._members or (self._has_open_string and key == self._keys[0])

    def __iter__(self) -> Iterator[str]:
        self._read()
        return iter([*self._members, self._keys[0]] if self._has_open_string else [*self._members])

    def __len__(self) -> int:
        self._read()
        return len(self._members) + self._has_open_string

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"

    def _string(self, key: str) -> _GrowingText | str:
        if self._has_open_string and key == self._keys[0]:
            return cast(_GrowingText, self._text)
        value = self._members[key]
        if not isinstance(value, str):
            raise KeyError(key)
        return value

    @property
    def _has_open_string(self) -> bool:
        return len(self._containers) == 1 and self._text is not None and not self._is_text_key

    def _read(self) -> None:
        if not self._unread:
            return
        text = self._rest + "".join(self._unread)
        self._unread.clear()
        self._rest = ""
        if self._is_broken:
            return
        try:
            self._read_text(text)
        except _NotAnObject:
            self._is_broken = True

    def _read_text(self, text: str) -> None:
        position = 0
        while position < len(text):
            step = self._read_next
            if text[position] <= " " and step not in (GrowingArguments._read_string, GrowingArguments._read_number):
                position = _end(_BLANKS, text, position, len(text))
                if position == len(text):
                    break
            position = step(self, text, position)

    # --- the steps: each reads on from a character, and returns the position behind what it read ----------------------

    def _read_start(self, text: str, position: int) -> int:
        if text[position] != "{":
            raise _NotAnObject
        self._open(self._members)
        return position + 1

    def _read_value(self, text: str, position: int) -> int:
        match text[position]:
            case '"':
                return self._begin_string(text, position)
            case "{":
                self._open({})
                return position + 1
            case "[":
                self._open([])
                return position + 1
            case "t" | "f" | "n":
                self._read_next = GrowingArguments._read_literal
                return position
            case _:
                return self._begin_number(text, position)

    def _read_first_item(self, text: str, position: int) -> int:
        if text[position] == "]":
            return self._close(position)
        return self._read_value(text, position)

    def _read_first_key(self, text: str, position: int) -> int:
        if text[position] == "}":
            return self._close(position)
        return self._read_key(text, position)

    def _read_key(self, text: str, position: int) -> int:
        plain = _PLAIN_KEY.match(text, position)
        if plain is not None:
            self._set_key(_clean(plain[1]))
            self._read_next = GrowingArguments._read_value
            return plain.end()
        if text[position] != '"':
            raise _NotAnObject
        self._open_string(is_key=True)
        return position + 1

    def _read_colon(self, text: str, position: int) -> int:
        if text[position] != ":":
            raise _NotAnObject
        self._read_next = GrowingArguments._read_value
        return position + 1

    def _read_after_value(self, text: str, position: int) -> int:
        is_list = isinstance(self._containers[-1], list)
        if text[position] == ",":
            self._count_value()
            self._read_next = GrowingArguments._read_value if is_list else GrowingArguments._read_key
            return position + 1
        if text[position] == ("]" if is_list else "}"):
            return self._close(position)
        raise _NotAnObject

    def _read_end(self, text: str, position: int) -> int:
        raise _NotAnObject

    def _begin_string(self, text: str, position: int) -> int:
        plain = _PLAIN_STRING.match(text, position)
        if plain is not None:
            self._add_value(_clean(plain[1]))
            return plain.end()
        self._open_string(is_key=False)
        return position + 1

    def _read_string(self, text: str, position: int) -> int:
        end = _end(_STRING_PART, text, position, position + _CHUNK_CHARS)
        if end > position:
            self._append_to_string(text[position:end])
        elif text[position] == '"':
            self._close_string()
            end += 1
        elif _CUT_ESCAPE.fullmatch(text, position):
            self._rest = text[position:]
            end = len(text)
        else:
            raise _NotAnObject
        return end

    def _append_to_string(self, chunk: str) -> None:
        decoded = cast(str, json.loads(f'"{chunk}"')) if "\\" in chunk else chunk
        if self._half or not decoded.isascii():
            decoded = self._half + decoded
            self._half = decoded[-1] if "\ud800" <= decoded[-1] <= "\udbff" else ""
            decoded = clean_text(decoded[:-1] if self._half else decoded)
        cast(_GrowingText, self._text).append(decoded)

    def _close_string(self) -> None:
        text = cast(_GrowingText, self._text)
        if self._half:
            text.append("\ufffd")
            self._half = ""
        self._text = None
        if self._is_text_key:
            self._set_key(text.whole())
            self._read_next = GrowingArguments._read_colon
        else:
            self._add_value(text.whole())

    def _read_literal(self, text: str, position: int) -> int:
        word, value = _LITERALS[text[position]]
        found = text[position : position + len(word)]
        if found == word:
            self._add_value(value)
            return position + len(word)
        if not word.startswith(found):
            raise _NotAnObject
        self._rest = found
        return len(text)

    def _begin_number(self, text: str, position: int) -> int:
        number = _WHOLE_NUMBER.match(text, position)
        if number is not None:
            self._add_value(_number(number))
            return number.end()
        if text[position] not in "-0123456789":
            raise _NotAnObject
        self._number_shape = ""
        self._number_parts.clear()
        self._read_next = GrowingArguments._read_number
        return position

    def _read_number(self, text: str, position: int) -> int:
        """Read a number in pieces; its shape is the number without its third and later digits in a row."""
        end = _end(_NUMBER_PART, text, position, len(text))
        part = text[position:end]
        self._number_parts.append(part)
        self._number_shape = _MORE_DIGITS.sub("", self._number_shape + part)
        if not _CUT_NUMBER.fullmatch(self._number_shape):
            raise _NotAnObject
        if end < len(text):
            number = _NUMBER.fullmatch("".join(self._number_parts))
            if number is None or text[end] not in _NUMBER_ENDS:
                raise _NotAnObject
            self._add_value(_number(number))
        return end

    # --- the object ---------------------------------------------------------------------------------------------------

    def _open(self, container: dict[str, Any] | list[Any]) -> None:
        self._count_value()
        if len(self._containers) == MAX_DEPTH:
            raise _NotAnObject
        self._containers.append(container)
        self._keys.append("")
        is_list = isinstance(container, list)
        self._read_next = GrowingArguments._read_first_item if is_list else GrowingArguments._read_first_key

    def _close(self, position: int) -> int:
        container = self._containers.pop()
        self._keys.pop()
        if self._containers:
            self._add_value(container)
        else:
            self._is_closed = True
            self._read_next = GrowingArguments._read_end
        return position + 1

    def _open_string(self, *, is_key: bool) -> None:
        self._text = _GrowingText()
        self._is_text_key = is_key
        self._read_next = GrowingArguments._read_string

    def _set_key(self, key: str) -> None:
        if key in self._containers[-1]:
            self._repeated_key = key
            raise _NotAnObject
        self._keys[-1] = key
        if len(self._containers) == 1:
            self._open_key = key

    def _add_value(self, value: Any) -> None:
        container = self._containers[-1]
        if isinstance(container, list):
            container.append(value)
        else:
            container[self._keys[-1]] = value
        if len(self._containers) == 1:
            self._open_key = None
        self._read_next = GrowingArguments._read_after_value

    def _count_value(self) -> None:
        """Count as `find_excess` does: one value for each bracket and each comma, and one more."""
        self._values += 1
        if self._values > MAX_VALUES:
            raise _NotAnObject


class _GrowingText:
    """A text that grows in pieces."""

    __slots__ = ("_pieces", "_starts", "length")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._starts: list[int] = []
        self.length = 0

    def append(self, piece: str) -> None:
        if piece:
            self._pieces.append(piece)
            self._starts.append(self.length)
            self.length += len(piece)

    def whole(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
            self._starts = [0]
        return self._pieces[0] if self._pieces else ""

    def text_from(self, offset: int) -> str:
        if offset >= self.length:
            return ""
        index = bisect_right(self._starts, offset) - 1
        first = self._pieces[index][offset - self._starts[index] :]
        return "".join([first, *self._pieces[index + 1 :]])


class _NotAnObject(Exception):
    """Raised where the text stops being one JSON object that `parse_arguments` accepts."""


def _end(pattern: re.Pattern[str], text: str, position: int, limit: int) -> int:
    """Return where the match at `position` ends, of a pattern that also matches nothing."""
    return cast("re.Match[str]", pattern.match(text, position, limit)).end()


def _clean(text: str) -> str:
    return text if text.isascii() else clean_text(text)


def _number(number: re.Match[str]) -> int | float:
    if not number["more"]:
        if len(number["integer"]) > MAX_DIGITS:
            raise _NotAnObject
        return int(number["integer"])
    value = float(number[0])
    if not math.isfinite(value):
        raise _NotAnObject
    return value
