"""Descriptions of a function and its parameters, read from its docstring: Google, numpy or reST.

1. The description of the function is the text before the first section or field. Sections on returns,
   exceptions, examples and the like are left out: they are not for a model.
2. The line breaks in the description of a parameter become spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile

__all__ = ["read_docstring"]

_GOOGLE_SECTION = re.compile(
    r"(?:(?P<parameters>(?:Keyword )?(?:Args|Arguments)|(?:Other )?Parameters)"
    r"|Returns|Raises|Yields|Examples?|Notes?):\s*"
)
_GOOGLE_PARAMETER = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")
_NUMPY_SECTION = re.compile(
    r"(?P<parameters>(?:Other )?Parameters)|Returns|Yields|Receives|Raises|Warns|Warnings|See Also|Notes|References"
    r"|Examples?|Attributes"
)
_NUMPY_PARAMETER = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_UNDERLINE = re.compile(r"-{3,}\s*")
_REST_FIELD = re.compile(
    r":(?:(?P<parameter>param|parameter|arg|argument|key|keyword)(?:\s[^:]*)?\s\*{0,2}(?P<name>\w+)"
    r"|type\s[^:]+|returns?|rtype|raises?(?:\s[^:]+)?|yields?|ytype)\s*:\s*(?P<text>.*)"
)


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the descriptions of a function and, by name, of its parameters; `text` is without its indentation.

    >>> read_docstring("Add.\\n\\nArgs:\\n    left (int): The first\\n        number.\\n\\nReturns:\\n    A number.")
    ('Add.', {'left': 'The first number.'})
    >>> read_docstring("Add.\\n\\nParameters\\n----------\\nleft, right : int\\n    The numbers.")
    ('Add.', {'left': 'The numbers.', 'right': 'The numbers.'})
    >>> read_docstring("Add.\\n\\n:param int left: The first number.\\n:returns: A number.")
    ('Add.', {'left': 'The first number.'})
    """
    lines = text.splitlines()
    starts = [index for index in range(len(lines)) if _begins_section(lines, index)]
    described: dict[str, str] = {}
    for start, end in pairwise([*starts, len(lines)]):
        for names, description in _parameters(lines[start:end]):
            described |= dict.fromkeys(names, " ".join(filter(None, map(str.strip, description))))
    return "\n".join(lines[: starts[0] if starts else len(lines)]).strip(), described


def _begins_section(lines: Sequence[str], index: int) -> bool:
    line = lines[index]
    return _is_numpy_section(lines[index : index + 2]) or bool(
        _GOOGLE_SECTION.fullmatch(line) or _REST_FIELD.match(line)
    )


def _is_numpy_section(lines: Sequence[str]) -> bool:
    return len(lines) > 1 and bool(_NUMPY_SECTION.fullmatch(lines[0].rstrip()) and _UNDERLINE.fullmatch(lines[1]))


def _parameters(section: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the names and the lines of the descriptions of the parameters in one section or field."""
    if field := _REST_FIELD.match(section[0]):
        if field["parameter"]:
            yield [field["name"]], [field["text"], *takewhile(str.strip, section[1:])]
        return
    is_numpy = _is_numpy_section(section)
    heading = (_NUMPY_SECTION if is_numpy else _GOOGLE_SECTION).fullmatch(section[0].rstrip())
    if heading is None or not heading["parameters"]:
        return
    entry = _NUMPY_PARAMETER if is_numpy else _GOOGLE_PARAMETER
    margin: int | None = None
    names, description = list[str](), list[str]()
    for line in filter(str.strip, section[2 if is_numpy else 1 :]):
        indent = len(line) - len(line.lstrip())
        margin = indent if margin is None else margin
        if indent < margin:
            break  # such as `Returns: a number.` on one line, which is no heading
        if indent == margin and (found := entry.fullmatch(line.strip())):
            if names:
                yield names, description
            names = [name.strip("* ") for name in found[1].split(",")]
            description = [] if is_numpy else [found[2]]
        else:
            description.append(line)
    if names:
        yield names, description
