"""The edits of a session's file: exact, all or none, and never with a placeholder for old text."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import pytest

from agenticx.tools.artifacts.edits import EditedText, EditError, apply_edits
from agenticx.tools.artifacts.placeholders import find_placeholder, is_placeholder
from tests.support.knowledge.data import knowledge_rows
from tests.support.lanes import Count

PAGE = "<ul>\n  <li>Rye</li>\n  <li>Spelt</li>\n</ul>\n"


def outcome(text: str, arguments: dict[str, Any]) -> tuple[str | None, str | None]:
    try:
        return apply_edits(text, arguments).text, None
    except EditError as exc:
        return None, exc.kind


def refusal(text: str, **arguments: Any) -> str:
    with pytest.raises(EditError) as raised:
        apply_edits(text, arguments)
    return str(raised.value)


def test_every_edit_of_the_data_has_its_outcome() -> None:
    rows = [row for row in knowledge_rows("edit_cases.jsonl") if row["error"] != "no_file"]
    assert len(rows) >= 27
    assert {row["name"]: outcome(row["before"], row["arguments"]) for row in rows} == {
        row["name"]: (row["after"], row["error"]) for row in rows
    }


def test_the_result_has_the_first_changed_line_and_what_was_forgiven() -> None:
    edits = [{"old_text": "Spelt", "new_text": "Oat"}, {"old_text": "<li>Rye</li> \n", "new_text": "<li>Rice</li>\n"}]
    assert apply_edits(PAGE, {"path": "index.html", "edits": edits}) == EditedText(
        "<ul>\n  <li>Rice</li>\n  <li>Oat</li>\n</ul>\n",
        places=2,
        first_line=2,
        notes=("Edit 2: white space at the ends of lines differed from old_text and was ignored.",),
    )
    assert apply_edits(PAGE, {"old_text": "li>", "new_text": "b>", "count": 3}) == EditedText(
        "<ul>\n  <b>Rye</b>\n  <b>Spelt</li>\n</ul>\n", places=3, first_line=2
    )
    assert apply_edits("a\r\nb\r\n", {"old_text": "a\n", "new_text": "a\nc\n"}).first_line == 2


@pytest.mark.parametrize(
    ("text", "old", "after"),
    [
        ("a  \nb\t\nc", "a\nb\n", "xc"),
        ("a\nb\n", "a  \nb  ", "x\n"),
        ("a \nb   \nc", "a\nb \nc", "x"),
        ("a\n   \nb", "a\n\nb", "x"),
        ("ab\na\n", "a  ", "ab\nx\n"),
        ("a = 10", "a = 1 ", None),
        ("  a", " \n  a", None),
        ("a b", "a  b", None),
        ("a", " \n ", None),
    ],
)
def test_only_white_space_at_line_ends_is_forgiven(text: str, old: str, after: str | None) -> None:
    assert outcome(text, {"old_text": old, "new_text": "x"}) == (after, None if after else "not_found")


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        ("a\r\nb\r\nc", "a\nb", "1\n2\n3", "1\r\n2\r\n3\r\nc"),
        ("a\nb\n", "a\r\nb", "1\r\n2", "1\n2\n"),
        ("a\rb\rc\r", "a\nb\n", "1\n2\n", "1\r2\rc\r"),
        ("a\r\nb\nc\r\n", "b\nc", "b\n2\nc", "a\r\nb\n2\nc\r\n"),
        ("a \r\nb\nc\r\n", "a\nb\n", "1\n2\n", "1\r\n2\nc\r\n"),
        ("a", "a", "1\r\n2", "1\r\n2"),
    ],
)
def test_the_line_ends_of_the_file_win(before: str, old: str, new: str, after: str) -> None:
    assert apply_edits(before, {"old_text": old, "new_text": new}).text == after


def test_errors_say_what_would_be_right() -> None:
    assert refusal(PAGE, old_text="<li>", new_text="<b>") == (
        "old_text occurs 2 times in the file (lines 2, 3); give more of the text around the one that is meant, or the"
        " count of those to replace, from the first on; -1 stands for all"
    )
    assert refusal(PAGE, old_text="<li>", new_text="<b>", count=3) == (
        "old_text occurs 2 times in the file (lines 2, 3), not 3 times; give another count, or -1 for all"
    )
    assert refusal(PAGE, old_text="<li>Rice</li>", new_text="") == (
        "old_text does not occur in the file; the nearest lines of the file are:\n"
        "2:   <li>Rye</li>\n3:   <li>Spelt</li>\n4: </ul>"
    )
    assert refusal(PAGE, old_text="<ul>\n<li>Rye</li>", new_text="").startswith(
        "old_text does not occur in the file as it is written: spaces, tabs or line breaks differ; the nearest"
    )
    assert refusal("}\n" * 50, old_text="}\n}\n", new_text="").startswith(
        "old_text occurs more than 10 times in the file (lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …)"
    )
    assert refusal(PAGE, edits=[{"old_text": "Rye", "new_text": "x"}, {"old_text": "Rye", "new_text": "y"}]).startswith(
        "edit 2: old_text does not occur in the file"
    )
    assert refusal(PAGE, old_text="Rye", new_text="\n<!-- rest of the list -->") == (
        "line 2 of new_text, '<!-- rest of the list -->', only stands for text that the file has, and would replace it;"
        " write that text out, or leave it out of the edit: what old_text does not name stays"
    )


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({}, "bad_arguments"),
        ({"old_text": "Rye"}, "bad_arguments"),
        ({"old_text": 1, "new_text": ""}, "bad_arguments"),
        ({"old_text": "Rye", "new_text": "", "count": 0}, "bad_arguments"),
        ({"old_text": "Rye", "new_text": "", "count": True}, "bad_arguments"),
        ({"old_text": "Rye", "new_text": "", "count": "1"}, "bad_arguments"),
        ({"old_text": "Rye", "new_text": "", "edits": [{"old_text": "Rye", "new_text": ""}]}, "bad_arguments"),
        ({"edits": "[]"}, "bad_arguments"),
        ({"edits": ["Rye"]}, "bad_arguments"),
        ({"edits": [{"old_text": "Rye", "new_text": "x"}] * 201}, "bad_arguments"),
        ({"old_text": PAGE.strip(), "new_text": " "}, "bad_arguments"),
        ({"old_text": "Rye", "new_text": "Rye"}, "no_change"),
        ({"old_text": "Rye\n", "new_text": "Rye\r\n"}, "no_change"),
        ({"edits": [{"old_text": "Rye", "new_text": "x"}, {"old_text": "x", "new_text": "Rye"}]}, "no_change"),
        ({"old_text": "l", "new_text": "x" * 600_000, "count": -1}, "too_large"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(arguments: dict[str, Any], kind: str) -> None:
    assert outcome(PAGE, arguments) == (None, kind)


def test_an_exact_edit_is_what_str_replace_does(rng: Random, count: Count) -> None:
    for _ in range(count(300, 2_000, 50_000)):
        text = "".join(rng.choices(["a", "b", "\n", " "], k=rng.randrange(1, 40)))
        start = rng.randrange(len(text))
        old = text[start : start + rng.randrange(1, 6)]
        places = rng.randrange(1, text.count(old) + 1)
        expected = text.replace(old, "x<y", places)
        edited = apply_edits(text, {"old_text": old, "new_text": "x<y", "count": places})
        assert (edited.text, edited.notes, edited.places) == (expected, (), places)
        crlf = apply_edits(f"\n{text}".replace("\n", "\r\n"), {"old_text": old, "new_text": "x<y", "count": -1})
        assert crlf.text.replace("\r\n", "\n") == f"\n{text}".replace(old, "x<y")


class _Stopped(Exception):
    pass


def test_the_work_of_one_call_is_bounded_and_a_stop_ends_it() -> None:
    back_and_forth = [
        {"old_text": "a", "new_text": "b", "count": -1},
        {"old_text": "b", "new_text": "a", "count": -1},
    ] * 50
    started = time.process_time()
    assert "edit 1: the edits of this call replace more than 100,000 places" in refusal(
        "a" * 1_990_000, edits=back_and_forth
    )
    assert "edit 3: the edits of this call replace more" in refusal("a" * 45_000, edits=back_and_forth)
    assert "more than 10,000,000; give fewer edits in a call" in refusal("a" + "\r\n\n" * 600_000, edits=back_and_forth)
    assert time.process_time() - started < 20
    calls = iter([None, None, _Stopped()])

    def stop_before_the_third() -> None:
        if (error := next(calls)) is not None:
            raise error

    with pytest.raises(_Stopped):
        apply_edits("a b", {"edits": back_and_forth}, raise_if_stopped=stop_before_the_third)


@pytest.mark.ci_lane
def test_a_search_in_a_large_file_is_bounded() -> None:
    text = "".join(f'<p class="{number}">{number * 7919}</p>\n' for number in range(70_000))
    started = time.process_time()
    message = refusal(text, old_text='<p class="69000">1</p>\n' * 50_000, new_text="x")
    assert "\n69001: <p class=" in message
    assert len(message) < 2_000
    assert len(refusal("x" * 2_000_000 + "<b>Rye</b>", old_text="<b>Rye!</b>", new_text="x")) < 2_000
    assert time.process_time() - started < 20


# --- lines that only stand for old text -------------------------------------------------------------------------------

PLACEHOLDERS = """
// ===== existing code =====
<%# rest of the view stays the same %>
<!-- existing head content -->
// ... existing code ...
// ...existing code...
# ... rest of the code unchanged ...
# rest of the function stays the same
// Rest of your code
<!-- Rest of the page remains the same -->
<!-- rest of the content -->
<!-- existing content here -->
<!-- Existing navigation links remain unchanged -->
<!-- ... -->
/* … */
...
/* existing styles */
/* ...rest of styles... */
/* (styles unchanged) */
// unchanged
<!-- same as before -->
// The remaining methods stay the same
// keep existing code
// ... other methods ...
... existing code ...
...rest of the code...
[... rest of the file unchanged ...]
[rest of the code unchanged]
{/* rest of the component */}
{/* ... */},
// code continues here
/* Everything else remains as is */
// leave the rest unchanged
<!-- Insert the existing content here -->
<!-- [Rest of the content remains unchanged] -->
// No changes below
/* styles omitted for brevity */
// ... previous code
<!-- ... more items ... -->
<!-- ... header ... -->
<!-- Header section unchanged -->
<!-- the rest of the body goes here -->
* ... existing rules ...
-- ... existing columns ...
<!-- Keep the header as is -->
# (existing code)
// 其余代码保持不变
// 残りのコードは同じ
// 나머지 코드는 동일합니다
// Rest bleibt unverändert
<!-- bestehender Inhalt -->
// le reste du code reste inchangé
// el resto del código sin cambios
// o resto do código permanece igual
// resto del codice invariato
// остальной код без изменений
""".strip().splitlines()

OTHER_LINES = """
# ===== Head =====
/* ===== Existing customers ===== */
<!-- footer -->
/* reset */
...args
...rest,
...existing,
...(isOpen && previous),
...existing.filter((x) => x.previous),
{...rest}
const { a, ...rest } = props;
return [...previous, item];
<p>To be continued...</p>
<li>...</li>
Loading...
...and the rest is history.
... and then they lived happily ever after ...
// Loading...
// previous button handler
/* previous button styles */
// keep the header sticky
/* remaining time */
<!-- remaining items -->
// REST API
// the rest is filled by flex
// restore the existing selection
<!-- Other products -->
// continue with the next item
// existing items are kept in order of their price
/* same as above, but for touch */
# Rest of the world
#existing-content {
* { margin: 0 }
--rest-color: red;
<h2>Existing content</h2>
<p>Everything else stays the same.</p>
The rest of the menu stays the same all year.
console.log("... existing code ...");
// previous value
// Keep focus inside the dialog
<!-- page content -->
// content is loaded later
<!-- Your logo here -->
1, 2, 3, ...
[...items]
[...previous, item],
(...existing, items) => items,
../existing/styles.css
// ../previous/page.html
// TODO: rest of the page
// use the remaining space
// unchanged values are skipped
// der Rest wird von flex gefüllt
// otros productos
""".strip().splitlines()


def test_lines_that_only_stand_for_old_text_are_told_from_others() -> None:
    assert [line for line in PLACEHOLDERS if not is_placeholder(f"    {line}")] == []
    assert [line for line in OTHER_LINES if is_placeholder(f"    {line}")] == []


def test_a_line_of_a_longer_comment_may_stand_for_old_text_and_a_stub_does_not() -> None:
    assert find_placeholder("<p>\n<!--\n  The rest of the page stays the same\n-->", "") == (
        3,
        "The rest of the page stays the same",
    )
    assert find_placeholder("<p>\nThe rest of the page stays the same\n", "") is None
    assert find_placeholder("def close(self) -> None:\n    ...\n", "") is None


def test_a_line_that_the_file_has_is_no_placeholder() -> None:
    page = f"<p>\n    // ... existing code ...\n{PAGE}"
    assert outcome(page, {"old_text": "Rye", "new_text": "\n// ... existing code ...\n"})[1] is None
    assert outcome(page, {"old_text": "Rye", "new_text": "\n// ... existing code\n"})[1] == "placeholder"
