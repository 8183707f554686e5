"""Lines in the new text of an edit that only stand for old text, such as `... rest of the code`.

Only whole lines count: a comment, or a text that begins with dots, that says that the rest, the existing, previous or
remaining code stays, goes on or is the same. Comments without dots must say just that, in the words of the lists, so
that `// existing users get a discount` and `/* previous button */` are none; dots at their beginning make fewer words
enough.
"""

from __future__ import annotations

from collections.abc import Iterator

from agenticx.lazy_patterns import lazy_compile

__all__ = ["find_placeholder", "is_placeholder"]

_MAX_CHARS = 160
"""The longest line that is looked at; a longer one says more than that old text stays."""


def find_placeholder(new_text: str, old_text: str) -> tuple[int, str] | None:
    """Return the number and text of the first line of `new_text` that only stands for old text, else None.

    A line that `old_text` has too, whatever its indentation, is none.
    """
    found = list(_placeholders(new_text))
    if not found:
        return None
    old_lines = {line.strip() for line in old_text.splitlines()}
    return next(((number, line) for number, line in found if line not in old_lines), None)


def _placeholders(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the stripped text of lines that only stand for others, also in comments of many lines."""
    closing = ""
    before = ""
    for number, whole in enumerate(text.splitlines(), start=1):
        line = whole.strip()
        is_stub = before.endswith(":") and line == "..."  # a function of Python without a body
        if not is_stub and is_placeholder(line, in_comment=closing != ""):
            yield number, line
        if closing:
            closing = "" if closing in line else closing
        else:
            closing = next((end for start, end in _LONG_COMMENTS if line.startswith(start) and end not in line), "")
        before = line or before


_LONG_COMMENTS = (("<!--", "-->"), ("{/*", "*/"), ("/*", "*/"))


def is_placeholder(line: str, *, in_comment: bool = False) -> bool:
    """Return whether a line only stands for old text; `in_comment` if it is a line of a longer comment."""
    line = line.strip().rstrip(",;").rstrip()
    if not 0 < len(line) <= _MAX_CHARS:
        return False
    inner = _comment_text(line)
    is_comment = inner is not None or in_comment
    text = (line if inner is None else inner).strip()
    if not text:
        return False
    begins, ends = _LEADING_DOTS.match(text), _TRAILING_DOTS.search(text)
    if not is_comment and begins is None:
        is_bracketed = text[0] + text[-1] in ("[]", "()")
        return is_bracketed and _BRACKETED.fullmatch(text) is not None and _says_it(_words(text))
    if not is_comment and _is_spread(text):
        return False
    words = _words(text)
    if not words:
        return begins is not None and not text.strip(_DOTS_AND_BRACKETS)
    if _CODE_SIGNS.search(text.strip(_EDGES)):
        return False
    if _says_it(words) or _says_it_elsewhere(words):
        return True
    if begins is None:  # existing list items...
        return ends is not None and len(words) <= 4 and words[0] in _FIRST and words[-1] in _CODE
    return _is_elision(words, is_comment=is_comment, is_closed=ends is not None)


def _is_elision(words: list[str], *, is_comment: bool, is_closed: bool) -> bool:
    """Return whether words behind dots say enough; `is_closed` if dots follow them too."""
    if len(words) > _MAX_WORDS:
        return False
    refers, names_code = not _REFERRING.isdisjoint(words), not _CODE.isdisjoint(words)
    if is_comment:
        return refers or (is_closed and len(words) <= 6)
    return refers and (names_code or (is_closed and len(words) <= 2)) and len(words) <= 7


# --- the form of a line -----------------------------------------------------------------------------------------------

_COMMENTS = (
    ("<!--", "-->"),
    ("{/*", "*/}"),
    ("{{/*", "*/}}"),
    ("/*", "*/"),
    ("{{!--", "--}}"),
    ("{#", "#}"),
    ("<%--", "--%>"),
    ("<%#", "%>"),
    ("///", ""),
    ("//", ""),
    ("## ", ""),
    ("# ", ""),
    ("#...", ""),
    ("-- ", ""),
    ("% ", ""),
    ("; ", ""),
)


def _comment_text(line: str) -> str | None:
    """Return the text of a line that is a comment, or None."""
    for start, end in _COMMENTS:
        if line.startswith(start):
            return line[start.find("...") if "..." in start else len(start) :].removesuffix(end)
    if line.startswith("* ") or line.endswith(("-->", "*/", "*/}")):  # a line of a longer comment
        return line.removeprefix("* ").removesuffix("}").removesuffix("-->").removesuffix("*/")
    return None


_DOTS_AND_BRACKETS = ".… \t[](){}*-–—"
_EDGES = f"{_DOTS_AND_BRACKETS}_=~!,:;'\"`"
_LEADING_DOTS = lazy_compile(r"[\s\[(*–—-]{0,4}(?:\.{3,}|…)")
_TRAILING_DOTS = lazy_compile(r"(?:\.{3,}|…)[\s\])*–—-]{0,4}\Z")
_BRACKETED = lazy_compile(r"[\[(][\w\s'’]+[\])]")
_CODE_SIGNS = lazy_compile(r"[{}=;<>$@\\|]")
_SPREAD = lazy_compile(r"\.\.\.[\w$({\[]")
_CODE_IN_SPREAD = lazy_compile(r"[,(){}\[\]=;?:&|]")
_WORD = lazy_compile(r"[^\W_]+(?:['’][^\W_]+)?")


def _is_spread(text: str) -> bool:
    """Return whether the dots are those of `...items` in JavaScript, not those of a sentence."""
    inner = text.strip("[]() ")
    if _SPREAD.match(inner) is None or _TRAILING_DOTS.search(inner):
        return False
    return " " not in inner or _CODE_IN_SPREAD.search(inner) is not None


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower().replace("’", "'"))


# --- what it says, in English -----------------------------------------------------------------------------------------


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_REFERRING = _set(
    """
    rest remaining remainder existing previous previously prior other others original same unchanged unmodified
    untouched continue continues continued keep keeps kept omitted truncated snip snipped remain remains stay stays
    before above everything more etc preserved identical retained
    """
)
_FIRST = _set("rest remaining existing previous other")
_WHOLES = _set(
    """
    code content contents css html javascript js typescript markup style styles styling stylesheet script scripts rules
    functions methods implementation logic sections imports definitions declarations structure source file template
    page document component components body
    """
)
"""Words for code that no sentence about a page's subject needs."""

_CODE = _WHOLES | _set(
    """
    section function method rule element elements item items card cards part parts block blocks class classes property
    properties prop props field fields handler handlers route routes test tests case cases line lines layout config
    configuration option options entry entries row rows link links tag tags node nodes child children text data
    variable variables constant constants attribute attributes listener listeners query queries selector selectors
    keyframes animation animations helper helpers program module import definition declaration stuff list head header
    footer hero sidebar nav navigation form forms input inputs button buttons images image state hooks table columns
    """
)


def _any(*choices: str) -> str:
    return f"(?:{'|'.join(choices)})"


def _each(words: str) -> str:
    return _any(*words.split())


_A_WORD = r"[\w']+"
_WHOLE, _PART = _any(*sorted(_WHOLES)), _any(*sorted(_CODE))
_THE = f"(?:{_each('and with all of the your this my our any these then')} )*"
_REST = "(?:the )?(?:rest|remainder)"
_ELSE = "(?:(?:everything|all) else|everything (?:above|below))"
_OTHER = _each("other others existing previous prior remaining original old current earlier unchanged")
_IS = (
    f"(?:{_each('is are be remain remains stay stays continue continues go goes left kept')} |(?:will|should|to) be )*"
)
_BEFORE = "(?:before|above|previous(?:ly)?|(?:in )?(?:the )?original)"
_AS_IS = "as (?:(?:it|they) )?(?:is|are|was|were|before|above)"
_SAME = _any(
    f"(?:exactly )?(?:the )?same(?: as (?:(?:it|they) (?:was|were) )?{_BEFORE})?",
    "unchanged|unmodified|unaltered|untouched|intact|identical|omitted",
    "(?:not|do not|does not|has not|have not) (?:changed?|shown|modified)|no changes?",
    _AS_IS,
)
_LASTS = _any("continues?|remains?|stays?|here|preserved|kept", "(?:goes|go|is|comes) here")
_TAIL = f"(?: {_any('here|below|above', 'for (?:brevity|now)', 'from before', 'unchanged', _AS_IS)})*"
_KEEP = f"(?:please )?{_each('keep leave preserve retain')}"
_PUT = _each("include insert add put paste copy use")

_SENTENCES = lazy_compile(
    _any(
        # rest of the styles remain the same · everything else stays as it is · rest unchanged
        rf"{_THE}(?:{_REST}(?: of(?: {_A_WORD}){{1,6}}?)?|{_ELSE}|others) {_IS}(?:{_SAME}|{_LASTS}){_TAIL}",
        # rest of the page · the rest of your existing code
        rf"{_THE}{_REST} of {_THE}(?:{_OTHER} )?(?:{_A_WORD} ){{0,2}}{_PART}{_TAIL}",
        # other sections remain unchanged
        rf"{_THE}{_OTHER}(?: {_A_WORD}){{1,5}}? {_IS}{_SAME}{_TAIL}",
        # previous content here · existing code continues
        rf"{_THE}{_OTHER} {_PART} (?:{_WHOLE} )?{_IS}{_LASTS}{_TAIL}",
        # remaining styles · existing card styles
        rf"{_THE}{_each('existing previous prior remaining original unchanged')} {_WHOLE}{_TAIL}",
        rf"{_THE}existing {_PART} {_WHOLE}{_TAIL}",
        # code continues · the page content is the same as before · header section unchanged
        rf"{_THE}(?:{_A_WORD} )?{_WHOLE} (?:above |below )?{_IS}(?:{_SAME}|continues?|remains?){_TAIL}",
        rf"{_THE}(?:{_PART} )?{_PART} {_IS}(?:unchanged|omitted|(?:the )?(?:same )?as before){_TAIL}",
        # unchanged · no changes here · same as before · omitted for brevity
        rf"{_IS}(?:unchanged|unmodified|untouched|omitted|truncated|snip(?:ped)?){_TAIL}",
        r"no (?:other |further )?changes?(?: (?:here|below|above|needed))?",
        rf"{_IS}(?:the )?same as (?:it was )?(?:before|previously|previous|(?:in )?(?:the )?original)(?: {_WHOLE})?",
        r"(?:exactly )?as before|(?:remains?|stays?) (?:exactly )?(?:the )?(?:same|unchanged|as is)",
        rf"the rest|{_ELSE}|(?:the )?same {_PART} as before",
        # keep the existing styles · leave the rest unchanged · insert existing content here
        rf"(?:{_KEEP}|{_PUT}) {_THE}(?:(?:{_OTHER}|rest of)(?: {_A_WORD}){{0,3}}? {_PART}|{_REST}|{_ELSE})"
        rf"(?: {_IS}(?:{_SAME}|here|in place))?{_TAIL}",
        # keep the header as is
        rf"{_KEEP} {_THE}(?:{_A_WORD} )?{_PART} {_IS}(?:the same )?{_AS_IS}",
    )
)


def _says_it(words: list[str]) -> bool:
    return _SENTENCES.fullmatch(" ".join(words)) is not None


# --- and in other languages -------------------------------------------------------------------------------------------

# Stems of German, French, Spanish, Portuguese, Italian, Russian and Polish; a star stands for any ending.
_STEMS = {
    "old": """
        rest restlich* übrig* verbleibend* bestehend* bisherig* vorherig* vorhanden* ander* alles sonstig*
        reste restant* existant* précédent* autres? tout
        resto restante* existente* anterior* previ[oa]s? demás otr[oa]s outr[oa]s
        esistent* precedent* rimanent* altr[eio]
        остальн* существующ* предыдущ* прежн* оставш* друг* reszta pozostał* istniejąc* poprzedni*
    """,
    "code": """
        code codes inhalt* stil* styles? html css js javascript skript* script* abschnitt* teil* funktion* element*
        seite datei contenus? page fichier fonctions? sections? éléments? código* contenido* conteúdo* estilo* página
        archivo arquivo seccion* sección seções funcion* función funções elementos? codice contenut* stili pagina file
        funzioni sezioni elementi код* содержим* стил* раздел* част* функци* страниц* файл* элемент* kod* treść styl*
    """,
    "same": """
        unverändert* gleich bleib* erhalten bisher zuvor vorher weiter weggelassen inchangé* identique* pareil restent?
        changement* igual* cambi[oa]* alterações alteração mudanças permanec* sigue* continua* continúa* mantien*
        mantém omitid[oa]s? invariat[oaie] ugual* riman* resta omess[oaie] изменени* меня* остаётся остается остаются
        прежн* продолжа* bez zmian zostaj*
    """,
    "other": """
        der die das des dem den und alle wie hier ist sind so es le la les du de des l ce est sont ici et tous toutes
        sans comme avant el los las del y e se aquí sin que antes lo como o os a as do da dos das sem aqui il i gli
        dello della dei delle è qui come prima tutto без не как и здесь же все весь до ten tego jest tutaj po staremu
    """,
}
_KINDS = {
    kind: lazy_compile(_any(*(stem.replace("*", r"\w*") for stem in stems.split()))) for kind, stems in _STEMS.items()
}
_UNSPACED = lazy_compile(
    _any(
        # Chinese
        ".{0,4}(?:其余|其他|其它|剩余|余下|原有|现有|已有|之前|以上|其餘|剩餘|現有).{0,6}"
        "(?:代码|程式碼|内容|內容|样式|樣式|部分|不变|不變|保持|相同|省略|一样).{0,8}",
        "(?:代码|内容|样式)?(?:保持|维持|維持)不[变變]|(?:代码|内容)?省略|同上|未更改",
        # Japanese
        ".{0,4}(?:残り|既存|以前|その他|以下|以降|元)の?.{0,6}"
        "(?:コード|内容|スタイル|部分|同じ|同様|省略|変更なし|そのまま).{0,8}",
        "変更なし|省略|そのまま",
        # Korean
        ".{0,4}(?:나머지|기존|이전|다른).{0,6}(?:코드|내용|스타일|부분|동일|그대로|변경 ?없음|생략).{0,12}",
        "변경 ?없음|생략|이하 동일",
    )
)
_MAX_WORDS = 10


def _says_it_elsewhere(words: list[str]) -> bool:
    """Return whether words of other languages say it; all of them must be in the lists."""
    if _UNSPACED.fullmatch(" ".join(words)):
        return True
    if len(words) > _MAX_WORDS:
        return False
    kinds = [{kind for kind, stems in _KINDS.items() if stems.fullmatch(word)} for word in words]
    found = {kind for of_word in kinds for kind in of_word}
    return all(kinds) and len(found & {"old", "code", "same"}) >= 2
