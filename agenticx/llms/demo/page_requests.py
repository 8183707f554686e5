"""The clauses of the demo's grammar that ask for a page, or for a change of one, in English or German."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from agenticx.llms.demo.clauses import PlannedCall, compile_clause, unquoted
from agenticx.llms.demo.pages import INDEX, NewPage, PageChange, title_of

__all__ = ["PAGE_CLAUSES", "TEXT_CLAUSE"]

_BuildClause = Callable[[re.Match[str]], PlannedCall | None]

_SHOWN_CHARS = 60
_SENTENCE_END = re.compile(r"[.!?]\s|\n")


def _english(found: re.Match[str]) -> PlannedCall:
    return _page(NewPage(found.groupdict().get("subject", "").strip(), "en"))


def _german(found: re.Match[str]) -> PlannedCall:
    return _page(NewPage(found["subject"].strip(), "de"))


def _page(page: NewPage) -> PlannedCall:
    subject = unquoted(_SENTENCE_END.split(page.subject, maxsplit=1)[0])[:_SHOWN_CHARS]
    about = f" about {subject}" if subject else ""
    return PlannedCall("create_file", {}, f"make a page{about}", page)


def _versions(found: re.Match[str]) -> PlannedCall:
    count = found["count"].casefold()
    number = _NUMBERS.get(count) or int(count)
    prompt = f"Make a page {found['rest'].strip()}".strip()
    return PlannedCall("run_variants", {"count": number, "prompt": prompt}, f"make {number} versions")


def _colour(found: re.Match[str]) -> PlannedCall | None:
    part, colour = found["part"].casefold(), _colour_of(found["colour"])
    return None if part not in _PARTS or colour is None else _coloured(part, colour)


def _coloured(part: str, colour: str) -> PlannedCall:
    change = PageChange("colour", _PARTS[part], colour)
    return _change(change, f"make the {part} {colour}", f"I have made the {part} {colour}.")


def _colour_of(words: str) -> str | None:
    """Return the colour of CSS that the words name, None if it is none."""
    word = "".join(words.casefold().replace("-", " ").split())
    return word if _HEX.fullmatch(word) else _COLOURS.get(word)


def _size(found: re.Match[str]) -> PlannedCall | None:
    part, grows = _PARTS.get(found["part"].casefold()), found["size"].casefold() in {"bigger", "larger", "größer"}
    if part not in {"heading", "text"}:
        return None
    word, change = ("larger" if grows else "smaller"), PageChange("size", part, "1.25" if grows else "0.8")
    return _change(change, f"make the {part} {word}", f"I have made the {part} {word}.")


def _words(found: re.Match[str]) -> PlannedCall:
    """Plan other words of a heading or title; after `heading`, the name of a colour is a colour and not its words."""
    part, words = found["part"].casefold(), unquoted(found["words"])
    is_title = part in {"title", "titel"}
    if not is_title and (colour := _colour_of(words)) is not None:
        return _coloured(part, colour)
    change = PageChange("words", "title" if is_title else "heading", words)
    return _change(change, f"change the {change.part} to {words!r}", f"The {change.part} is {words!r} now.")


def _section(found: re.Match[str]) -> PlannedCall:
    title = title_of(NewPage(unquoted(found["topic"]), "en"))
    return _change(PageChange("section", "", title), f"add a section {title!r}", f"There is a section {title!r} now.")


def _text(found: re.Match[str]) -> PlannedCall:
    old, new = unquoted(found["old"]), unquoted(found["new"])
    change = PageChange("literal", old, new)
    return _change(change, f"replace {old!r} with {new!r}", f"I have replaced {old!r} with {new!r}.")


def _change(change: PageChange, intent: str, done: str) -> PlannedCall:
    return PlannedCall("edit_file", {}, intent, change, done)


def _save(found: re.Match[str]) -> PlannedCall:
    target = unquoted(found["to"])
    return PlannedCall("artifact_save", {"path": INDEX, "to": target}, f"save the page as {target}")


def _option(found: re.Match[str]) -> PlannedCall:
    number = int(found["number"])
    return PlannedCall("retrieve_option", {"option_number": number}, f"look at option {number}")


# --- words ----------------------------------------------------------------------------------------------------------

_NUMBERS: Mapping[str, int] = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
_HEX = re.compile(r"#(?:[0-9a-f]{3}|[0-9a-f]{6})")

_PARTS: Mapping[str, str] = {
    **dict.fromkeys(("heading", "headline", "title", "h1", "überschrift", "titel"), "heading"),
    **dict.fromkeys(("background", "page", "hintergrund", "seite"), "background"),
    **dict.fromkeys(("text", "font", "schrift"), "text"),
    **dict.fromkeys(("button", "buttons", "link", "links", "accent", "knopf", "knöpfe"), "accent"),
    **dict.fromkeys(("card", "cards", "boxes", "tiles", "karten", "kacheln"), "surface"),
}
"""The custom property with the colour of a part of the page, by the words for that part."""

_NAMED_COLOURS = """
aqua beige black blue brown chocolate coral crimson cyan darkblue darkgray darkgreen darkorange darkred darkviolet
fuchsia gold gray green grey hotpink indigo ivory khaki lightblue lightgray lightgreen lightpink lightyellow lime
magenta maroon navy olive orange orchid pink plum purple red royalblue salmon sienna silver skyblue steelblue tan teal
tomato turquoise violet white yellow
"""
_COLOURS: Mapping[str, str] = {
    **{name: name for name in _NAMED_COLOURS.split()},
    "darkpurple": "indigo",
    "lightpurple": "plum",
    "darkpink": "deeppink",
    "lightred": "salmon",
    "cream": "ivory",
    "schwarz": "black",
    "weiß": "white",
    "grau": "gray",
    "rot": "red",
    "dunkelrot": "darkred",
    "gelb": "gold",
    "grün": "green",
    "dunkelgrün": "darkgreen",
    "hellgrün": "lightgreen",
    "blau": "blue",
    "lila": "purple",
    "dunkelblau": "darkblue",
    "hellblau": "lightblue",
    "türkis": "turquoise",
    "rosa": "pink",
    "braun": "brown",
}
"""Colours of CSS by the words for them, without blanks."""

# --- patterns -------------------------------------------------------------------------------------------------------

_MAKE = r"(?:(?:make|build|create|design|write|generate|code|i\s++(?:want|need)|i'd\s++like)\s++(?:(?:me|us)\s++)?)"
_SITE = r"(?:web|home|landing)?[\s-]?(?:page|site)"
_ABOUT = r"(?:,?\s++(?:about|for|of|on|to\s++(?:present|show)|that\s++shows?|showing|presenting)\s++|:\s*+)"
_WORDS = r"(?:[\w'-]++,?\s++){0,6}?"
_ERSTELLE = (
    r"(?:(?:mach|bau|erstell|schreib|gestalt|generier|erzeug)(?:e|en)?|entwirf|(?:kannst|könntest)\s++du|"
    r"ich\s++(?:möchte|brauche))\s++(?:(?:mir|uns|bitte)\s++)*"
)
_SEITE = r"\w{0,20}(?:seite|page|site)"
_ZUM_SCHLUSS = r"(?:(?<!\s)\s++(?:bauen|machen|erstellen|schreiben|gestalten|entwerfen|haben))?"
_THE = r"(?:the|all|die|den|das|der)\s"
_PART = rf"(?:{_THE}\s*+|(?!{_THE}))(?P<part>\w{{2,20}})"
_FILE_NAMED = r"(?!.*\sin\s++(?:the\s++file\s++)?\S+\.\w+$)"  # a change of a file in the workspace

PAGE_CLAUSES: tuple[tuple[re.Pattern[str], _BuildClause], ...] = (
    (
        compile_clause(
            rf"{_MAKE}(?P<count>[2-8]|two|three|four|five|six|seven|eight)\s++(?:\w++\s++)?"
            rf"(?:versions?|variants?|options?|alternatives?|designs?)\s++(?:of|for)\s++(?:an?|the|my)\s++{_WORDS}{_SITE}"
            r"(?P<rest>\s.*)?"
        ),
        _versions,
    ),
    (compile_clause(rf"(?:{_MAKE}(?:an?\s++)?|(?:an?|one)\s++){_WORDS}{_SITE}{_ABOUT}(?P<subject>.+)"), _english),
    (compile_clause(rf"{_MAKE}(?:an?|the|my|one)\s++{_WORDS}{_SITE}"), _english),
    (
        compile_clause(
            rf"(?:{_ERSTELLE})?(?:eine[nr]?|die)\s++{_WORDS}{_SEITE}\s++(?:über|für|zum\s++thema|zu|von)\s++"
            rf"(?P<subject>.+?){_ZUM_SCHLUSS}"
        ),
        _german,
    ),
    (compile_clause(r"add\s++(?:an?|another)\s++section\s++(?:about|on|for|called|named)\s++(?P<topic>.+)"), _section),
    (compile_clause(r"füge?\s++einen\s++abschnitt\s++(?:über|zu|für)\s++(?P<topic>.+?)\s++hinzu"), _section),
    (
        compile_clause(
            rf"(?:make|mache?)\s++{_PART}\s++(?:(?:a\s++bit|much|etwas)\s++)?"
            r"(?P<size>bigger|larger|smaller|größer|kleiner)"
        ),
        _size,
    ),
    (
        compile_clause(
            rf"(?:make|turn|paint|colou?r|set|change|mache?|färbe?)\s++{_PART}(?:'s)?(?:\s++colou?r)?\s++"
            r"(?:(?:to|into|in|auf)\s++)?(?P<colour>#\w{3,6}|\w{3,20}(?:[\s-]\w{3,20})?)"
        ),
        lambda found: None if found["part"].casefold() in {"title", "titel"} else _colour(found),
    ),
    (
        compile_clause(
            r"(?:change|set|rename|ändere?|setze?)\s++(?:(?:the|die|den)\s++)?"
            r"(?P<part>title|titel|heading|headline|überschrift)\s++(?:to|into|zu|in|auf)\s++"
            rf"{_FILE_NAMED}(?P<words>.+)"
        ),
        _words,
    ),
    (
        compile_clause(
            r"(?:(?:make|build)\s++(?:this|that)\s++|(?:rebuild|recreate|clone|turn|convert)\s++)"
            r"(?:(?:the|an?|my|this|that|web)\s++)*"
            r"(?:page|site|website|screenshot|screen|image|picture|design|mock-?up|sketch)(?:\s.{0,80})?"
        ),
        _english,
    ),
    (compile_clause(r"save\s++(?:it|this|the\s++page|index\.html)\s++(?:as|to|in|under)\s++(?P<to>\S+)"), _save),
    (
        compile_clause(
            r"(?:show|use|take|look\s++at|get|retrieve)\s++(?:[\w'-]++\s++){0,6}?option\s++(?P<number>\d{1,4})(?:\s.{0,80})?"
        ),
        _option,
    ),
)
"""The patterns of these clauses, each with the function that plans its call; None means that it is another clause."""

TEXT_CLAUSE: tuple[re.Pattern[str], _BuildClause] = (
    compile_clause(
        r"(?:replace|change|ersetze?|ändere?)\s++(?P<old>\"[^\"]+\"|'[^']+'|`[^`]+`|“[^”]+”|.+?)(?<!\s)\s++"
        r"(?:with|to|by|durch|zu)\s++(?P<new>.+)"
    ),
    _text,
)
"""The replacement of a text that names no file."""
