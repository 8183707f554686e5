"""The page names its modules in `index.html`, so that none waits until those that import it are read.

`python -m tests.repo.test_page_modules` writes the list anew.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path

WEB = Path(__file__).parents[2] / "studio" / "web"
INDEX = WEB / "index.html"
FIRST = "main.js"
LATER = ("ui/conversation.js", "ui/below.js")
"""Modules that are loaded once the page is painted, with low priority before; others wait until they are wanted."""

MAX_BYTES = 60_000
"""The most that all scripts may have, compressed, that are loaded before the first message can be written."""

_IMPORT = re.compile(r"^(?:import|export|\})(?:[^;]*? from)? \"(\.[^\"]+)\";", re.MULTILINE)
_LINK = re.compile(r"  <link rel=\"modulepreload\"[^\n]*\n")


def imported(name: str) -> list[str]:
    """Return a module and all that it imports statically, those first that are fewer imports away."""
    found = [name]
    for module in found:  # it grows meanwhile
        path = WEB / module
        for each in _IMPORT.findall(path.read_text(encoding="utf-8")):
            other = (path.parent / each).resolve().relative_to(WEB).as_posix()
            if other not in found:
                found.append(other)
    return found


def test_the_page_names_the_modules_that_it_loads_at_once() -> None:
    text = INDEX.read_text(encoding="utf-8")
    assert text == with_links(text), f"run python -m {__spec__.name if __spec__ else __name__}"


def test_the_first_message_can_be_written_after_few_bytes_of_scripts() -> None:
    sizes = {name: len(gzip.compress((WEB / name).read_bytes(), 9)) for name in imported(FIRST)}
    total, largest = sum(sizes.values()), sorted(sizes.items(), key=lambda item: -item[1])[:8]
    assert total <= MAX_BYTES, f"{total:,} bytes; load parts later with ui/lazy.js; the largest are {largest}"


def with_links(text: str) -> str:
    """Return `index.html` with the links of its modules."""
    first = imported(FIRST)
    later = dict.fromkeys(module for name in LATER for module in imported(name))
    links = [_link(name) for name in first if name != FIRST]
    links += [_link(name, ' fetchpriority="low"') for name in later if name not in first]
    return _LINK.sub("", text).replace("</head>", "".join(links) + "</head>")


def _link(name: str, attributes: str = "") -> str:
    return f'  <link rel="modulepreload" href="assets/{name}"{attributes}>\n'


if __name__ == "__main__":
    INDEX.write_text(with_links(INDEX.read_text(encoding="utf-8")), encoding="utf-8")
