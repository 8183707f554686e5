"""The guide: pages in Markdown beside this module, which `agx guide` and the studio show.

A link from one page to another names its file, as in `asking.md#modes`, so that it works where files are read, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agenticx.errors import AgenticXError
from agenticx.similar_names import similar_names

__all__ = ["GuidePage", "UnknownGuidePage", "guide_page", "guide_pages"]

_FOLDER = Path(__file__).parent
_ORDER = (
    "quickstart",
    "tools",
    "asking",
    "events",
    "sessions",
    "agents",
    "subagents",
    "teams",
    "notes",
    "pages",
    "models",
    "testing",
    "desktop-apps",
    "deployment",
    "many-workers",
    "from-pydantic-ai",
    "from-openai-agents",
    "from-autogen",
    "from-autoagent",
)
"""The order of reading; a page that is missing here comes last."""


class UnknownGuidePage(AgenticXError):
    """Raised for a name that no page has; the text names those that are close, or all."""


@dataclass(frozen=True, slots=True)
class GuidePage:
    """A page: its name, the heading on its first line, and its whole text in Markdown, heading included."""

    name: str
    title: str
    text: str

    @property
    def summary(self) -> str:
        """The first sentence below the heading, on one line."""
        paragraph = " ".join(self.text.split("\n\n", 2)[1].split())
        end = paragraph.find(". ")
        return paragraph if end < 0 else paragraph[: end + 1]


def guide_pages() -> Sequence[GuidePage]:
    """Return all pages in the order of reading; reads files."""
    places = {name: place for place, name in enumerate(_ORDER)}
    names = sorted((path.stem for path in _FOLDER.glob("*.md")), key=lambda name: (places.get(name, len(places)), name))
    return [guide_page(name) for name in names]


def guide_page(name: str) -> GuidePage:
    """Return the page of that name, in upper or lower case; raise UnknownGuidePage for another one; reads files."""
    paths = {path.stem: path for path in _FOLDER.glob("*.md")}
    name = name if name in paths else name.lower()
    if name not in paths:
        similar = similar_names(name, paths, number=3, cutoff=0.7)
        hint = f"did you mean {' or '.join(similar)}?" if similar else f"the pages: {', '.join(sorted(paths))}"
        raise UnknownGuidePage(f"no page of the guide is named {name[:80]!r}; {hint}")
    text = paths[name].read_text("utf-8")
    return GuidePage(name=name, title=text.partition("\n")[0].removeprefix("# "), text=text)
