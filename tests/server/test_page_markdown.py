"""Markdown and the colours of code on the page: what is written while it streams, hostile texts, and no markup."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from random import Random

import pytest

from agenticx.llms import ScriptedModel
from tests.support.javascript import NODE, run_module
from tests.support.knowledge.data import knowledge_folder
from tests.support.lanes import Count
from tests.support.server.chromium import CHROMIUM, Tab
from tests.support.server.page import STOPPED, button, click, enter, send_message
from tests.support.server.running_studio import StudioMaker

NODE_FOLDER = Path(__file__).parents[1] / "node"
PROGRAMS = NODE_FOLDER / "markdown"
NEEDS_NODE = pytest.mark.skipif(NODE is None, reason="needs node")
NEEDS_CHROMIUM = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

PARSE_IN_PARTS = """
    const changed = [];
    for (const [index, { text, ends }] of given.entries()) {
        const whole = JSON.stringify(module.parseMarkdown(text).blocks);
        let parsed = null;
        for (const end of ends) {
            const before = parsed, seen = JSON.stringify(before?.blocks);
            parsed = module.parseMarkdown(text.slice(0, end), parsed);
            if (JSON.stringify(before?.blocks) !== seen) changed.push(index);
        }
        if (JSON.stringify(parsed.blocks) !== whole) changed.push(index);
    }
    return changed;
"""
DIVIDE = """
    return given.flatMap(({ text, ends }) => {
        let parts = [];
        for (const end of ends) parts = module.divideText(text.slice(0, end), 20, parts);
        const whole = module.divideText(text, 20);
        const isSame = JSON.stringify(parts) === JSON.stringify(whole), isText = whole.join("") === text;
        return isSame && isText && whole.every((part) => part && part.isWellFormed()) ? [] : [text];
    });
"""
PIECES = [
    *(
        "a",
        " ",
        "  ",
        "\n",
        "\n\n",
        "- ",
        "1. ",
        "> ",
        "    ",
        "\t",
        "# ",
        "```",
        "~~~\n",
        "|",
        "-|-",
        "a|b\n",
        "---\n",
        "===",
    ),
    *("[a]: b\n", "[a]", "*", "**", "_", "`", "<", ">", "<!--", "<div>\n", "\\", "[x] ", "https://a.b", "\r\n"),
]
HOSTILE = """# <script>alert(1)</script>

<img src=x onerror=alert(1)> **bold** [a](javascript:alert(1)) [b](https://example.com/?q=<b>) ![pic](https://example.com/p.png)

- [x] done
- [ ] to\u202edo

| a | b |
|---|:-:|
| `\u200b` | <iframe src="data:text/html,x"></iframe> |

```js
const a = "<b>"; // \u2066
```
"""


def _markdown_files() -> list[Path]:
    return sorted(knowledge_folder().rglob("*.md"))


@NEEDS_NODE
def test_a_text_in_parts_has_the_blocks_of_the_whole_and_leaves_the_earlier_ones_unchanged(
    count: Count, rng: Random
) -> None:
    files = rng.sample(_markdown_files(), count(40, 400, 490))
    texts = [path.read_text(encoding="utf-8") for path in files]
    texts += ["".join(rng.choices(PIECES, k=60)) for _ in files]
    given = [{"text": text, "ends": _ends(text, rng)} for text in texts]
    assert run_module("text/markdown.js", PARSE_IN_PARTS, given) == []


@NEEDS_NODE
def test_a_long_block_has_the_same_parts_read_whole_and_while_it_is_written(count: Count, rng: Random) -> None:
    pieces = ["a", " ", "**", "`", "[a](b)", "\n", "<br>", "😀", "\ue0001\ue001", "a" * 400, "😀" * 200, "http://a.b"]
    texts = ["".join(rng.choices(pieces, k=300)) for _ in range(count(20, 100, 400))]
    given = [{"text": text, "ends": _ends(text, rng)} for text in texts]
    assert run_module("text/markdown_size.js", DIVIDE, given) == []


def _ends(text: str, rng: Random) -> list[int]:
    """Return where parts of the text end, in UTF-16 code units as JavaScript counts."""
    length = len(text.encode("utf-16-le")) // 2
    return [*sorted(rng.sample(range(length), min(length, 30))), length]


@pytest.mark.ci_lane
@NEEDS_NODE
@pytest.mark.skipif(not (NODE_FOLDER / "node_modules" / "marked").exists(), reason=f"run `npm ci` in {NODE_FOLDER}")
def test_files_have_the_blocks_that_marked_finds() -> None:
    """Three differ, in which the page agrees with CommonMark: a lazy line with code, and brackets in a link's text."""
    files = [str(path) for path in _markdown_files()]
    output = _run("oracle.mjs", *files)
    different = {Path(line).stem for line in output.splitlines() if not line.startswith(" ")}
    assert different == {"migrating-from-onenote", "Glossary", "Health"}, output


@pytest.mark.ci_lane
@NEEDS_NODE
def test_markdown_and_colours_take_linear_time_for_hostile_texts() -> None:
    assert _run("linear.mjs", "32000") == ""


def _run(program: str, *arguments: str) -> str:
    assert NODE is not None
    done = subprocess.run([NODE, str(PROGRAMS / program), *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


RENDER = """
    (async () => {
        const { html, render } = await import("/assets/vendor/preact.js");
        const { MarkdownView } = await import("/assets/ui/markdown_view.js");
        await import("/assets/ui/lost_focus.js");
        window.box = document.body.appendChild(document.createElement("article"));
        const mark = (number) => html`<button>${number}</button>`;
        window.show = (text, complete) =>
            render(html`<${MarkdownView} text=${text} complete=${complete} mark=${mark} />`, box);
    })()
"""


@pytest.mark.anyio
@NEEDS_CHROMIUM
async def test_what_a_model_wrote_becomes_text_in_known_elements_only(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio() as studio:
        await tab.open(f"http://127.0.0.1:{studio.port}/")
        await tab.evaluate(RENDER)
        await tab.evaluate(f"show({HOSTILE!r}, true)")
        names = await tab.evaluate("[...new Set([...box.querySelectorAll('*')].map((e) => e.localName))].sort()")
        known = "a button code div h2 input li p pre span strong table tbody td th thead tr ul"
        assert names == known.split()
        assert await tab.evaluate(
            "[...box.querySelectorAll('a')].map((a) => [a.href, a.rel, a.target, a.textContent])"
        ) == [
            ["https://example.com/?q=%3Cb%3E", "noreferrer", "_blank", "b"],
            ["https://example.com/p.png", "noreferrer", "_blank", "Image: pic"],
        ]
        text = await tab.evaluate("box.textContent")
        for part in ("<script>alert(1)</script>", "onerror=alert(1)>", "a (javascript:alert(1))", "<iframe src="):
            assert part in text
        for hidden in ("⟨U+202E⟩", "⟨U+200B⟩", "⟨U+2066⟩"):
            assert hidden in text
        assert await tab.evaluate("box.querySelector('.code-comment').textContent") == "// ⟨U+2066⟩"
        lists = "98. a\n" * 3 + "\n> 7. b\n"
        await tab.evaluate(f"show({lists!r}, true)")
        room = "[...box.querySelectorAll('ol')].map((list) => parseFloat(getComputedStyle(list).paddingLeft))"
        assert len(set(await tab.evaluate(room))) == 2  # numbers of three digits have more
        prose = "a\u200bb\n\n```\nx\u200by\n```"
        await tab.evaluate(f"show({prose!r}, true)")
        shown = "a⟨U+200B⟩bCodeCopyx⟨U+200B⟩y"  # the same in prose and in code, which has a name without a language too
        assert await tab.evaluate("box.querySelector('.markdown').textContent") == shown
        assert tab.errors == []


@pytest.mark.anyio
@NEEDS_CHROMIUM
async def test_only_the_block_that_is_written_changes_and_code_is_coloured_when_it_ends(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio() as studio:
        await tab.open(f"http://127.0.0.1:{studio.port}/")
        await tab.evaluate(RENDER)
        start = "First *one*\n\n- a\n- b\n\n```python\nimport x"
        await tab.evaluate(f"show({start!r}, false)")
        await tab.evaluate(
            """(() => {
                window.changes = [];
                const record = (records) => changes.push(...records.map(({target}) => target.parentElement.localName));
                new MutationObserver(record).observe(box, {subtree: true, characterData: true, childList: true});
            })()"""
        )
        await tab.evaluate(f"show({start + ' as y'!r}, false)")
        assert await tab.evaluate("changes") == ["code"]
        assert await tab.evaluate("box.querySelector('.code-keyword')") is None
        await tab.evaluate(f"show({start + ' as y' + chr(10) + '```' + chr(10)!r}, false)")
        assert await tab.evaluate("box.querySelector('.code-keyword').textContent") == "import"
        assert await tab.evaluate("box.querySelector('.markdown').textContent") == "First oneabpythonCopyimport x as y"
        assert tab.errors == []


@pytest.mark.anyio
@NEEDS_CHROMIUM
async def test_long_tables_and_code_are_shown_on_request(make_studio: StudioMaker, tab: Tab) -> None:
    table = "| a |\n|---|\n" + "".join(f"| {number} |\n" for number in range(500))
    code = "```\n" + "".join(f"{number}\n" for number in range(900)) + "```\n"
    async with make_studio() as studio:
        await tab.open(f"http://127.0.0.1:{studio.port}/")
        await tab.evaluate(RENDER)
        await tab.evaluate(f"show({table + code!r}, true)")
        count = "[box.querySelectorAll('td').length, box.querySelector('code').textContent.split('\\n').length]"
        assert await tab.evaluate(count) == [200, 400]
        await click(tab, "Show 200 more rows (300 left)")
        await click(tab, "Show 400 more lines (500 left)")
        await tab.wait_for(f"{count}.join() === '400,800'")
        for name, place in (("Show 100 more rows", "Table"), ("Show 100 more lines", "Code")):
            await tab.evaluate(f"{button(name)}.focus()")
            await tab.press("Enter")
            await tab.wait_for(f"document.activeElement.ariaLabel === {place!r}")  # there is no button any more
        await tab.wait_for(f"{count}.join() === '500,900'")
        assert await tab.evaluate(f"{button('Show')} === undefined")
        await tab.evaluate("show('|a'.repeat(150) + '|\\n' + '|-'.repeat(150) + '|\\n' + '|b'.repeat(150) + '|', true)")
        cells = "box.querySelectorAll('tr').length + ' ' + box.querySelectorAll('th, td').length"
        await tab.wait_for(f"{cells} === '2 200'")
        await click(tab, "Show 50 more columns")
        await tab.wait_for(f"{cells} === '2 300' && {button('Show')} === undefined")
        assert tab.errors == []


LARGE = [
    "'**a'.repeat(20000)",
    "'# ' + '**bold** and `code`  '.repeat(10000)",
    "'[a](http://b.c) '.repeat(10000)",
    "'`a` '.repeat(20000)",
    "'a<br>'.repeat(20000)",
    "'a  \\n'.repeat(20000)",
    "'\ue0001\ue001'.repeat(10000)",
    "'www.a.b '.repeat(10000)",
    "'<a@b.c> '.repeat(10000)",
    "'|a'.repeat(200) + '|\\n' + '|-'.repeat(200) + '|\\n' + ('|b'.repeat(200) + '|\\n').repeat(200)",
    "'|a'.repeat(99) + '\\n' + '|-'.repeat(99) + '\\n' + ('|' + '`a` '.repeat(400)).repeat(99)",
    "'- a\\n'.repeat(20000)",
    "Array.from({length: 38}, (_, depth) => ('  '.repeat(depth) + '- a\\n').repeat(200)).join('')",
    "'> a\\n>\\n'.repeat(20000)",
    "'---\\n'.repeat(20000)",
    "'```js\\n' + 'a(1)'.repeat(24000) + '\\n```'",
]
TEXT_OF = """
    (async () => {
        const { plainText } = await import("/assets/ui/markdown_view.js");
        return plainText("**a** `b` ".repeat(5000)) === "a b ".repeat(5000).trim();
    })()
"""


@pytest.mark.anyio
@NEEDS_CHROMIUM
async def test_of_a_large_block_a_part_is_mounted_and_the_rest_on_request(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio() as studio:
        await tab.open(f"http://127.0.0.1:{studio.port}/")
        await tab.evaluate(RENDER)
        for text in LARGE:
            await tab.evaluate(f"show('', true), show({text}, true)")
            assert 300 < await tab.evaluate("box.querySelectorAll('*').length") < 6100, text
        for text in ("'a '.repeat(300000)", "'<div>\\n' + 'a\\n'.repeat(200000)", "'```\\n' + 'a'.repeat(300000)"):
            await tab.evaluate(f"show({text}, true)")  # without elements, but much to lay out
            assert 3000 < await tab.evaluate("box.textContent.length") < 110_000, text
        await tab.evaluate("show('**a** `b`\ue0001\ue001 '.repeat(1200), true)")
        counts = "['strong', 'code', 'p > span > button'].map((name) => box.querySelectorAll(name).length).join()"
        assert all(150 < int(number) < 300 for number in (await tab.evaluate(counts)).split(","))
        for left in range(10, 0, -1):
            more = await tab.evaluate("box.querySelector('.show-more')?.textContent ?? null")
            if more is None:
                break
            assert more.startswith("Show 1 more part"), left
            await tab.evaluate("box.querySelector('.show-more').focus()")
            await tab.press("Enter")
            await tab.wait_for(f"box.querySelector('.show-more')?.textContent !== {more!r}")
        assert await tab.evaluate(counts) == "1200,1200,1200"
        await tab.wait_for(
            "document.activeElement.localName === 'span'"
        )  # the last part, as there is no button any more
        assert await tab.evaluate(TEXT_OF)  # for Copy and Find, whatever is mounted
        assert tab.errors == []


@pytest.mark.anyio
@NEEDS_CHROMIUM
async def test_of_a_long_block_that_is_written_only_the_end_is_drawn_again(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio() as studio:
        await tab.open(f"http://127.0.0.1:{studio.port}/")
        await tab.evaluate(RENDER)
        await tab.evaluate("window.whole = 'word **and** '.repeat(20000), show(whole.slice(0, 200000), false)")
        await tab.evaluate(
            """(() => {
                window.changed = new Set();
                const record = (records) => records.forEach(({target}) => changed.add(target.data?.length ?? 0));
                new MutationObserver(record).observe(box, {subtree: true, characterData: true});
            })()"""
        )
        await tab.evaluate("show(whole.slice(0, 200100), false)")
        assert await tab.evaluate("box.textContent === whole.slice(0, 200100)")
        (length,) = await tab.evaluate("[...changed]")
        assert length < 10_000
        await tab.evaluate("show(whole, true)")
        assert 200 < await tab.evaluate("box.querySelectorAll('strong').length") < 1000
        assert tab.errors == []


@pytest.mark.anyio
@pytest.mark.ci_lane
@NEEDS_CHROMIUM
async def test_a_wide_table_scrolls_in_its_own_box_with_its_words_whole(make_studio: StudioMaker, tab: Tab) -> None:
    words = ["name", "value", "`an_identifier_of_a_function`", "measurements", "description", "see\u00a0above"]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in (words, ["---"] * len(words), words))
    async with make_studio(ScriptedModel([table])) as studio:
        await enter(tab, studio)
        await tab.resize(390, 800)
        await send_message(tab, "A table")
        heights = "[...document.querySelectorAll('#log tbody tr')].map((row) => row.clientHeight)"
        (height,) = await tab.wait_for(f"{STOPPED} && {heights}.length && {heights}")
        assert height < 48  # one line
        box = "document.querySelector('#log .table')"
        assert await tab.evaluate(f"{box}.scrollWidth > {box}.clientWidth && {box}.tabIndex === 0")
        assert await tab.evaluate("((log) => log.scrollWidth === log.clientWidth)(document.getElementById('log'))")
        assert tab.errors == []


@pytest.mark.anyio
@pytest.mark.ci_lane
@NEEDS_CHROMIUM
@NEEDS_NODE
async def test_hostile_texts_are_shown_without_an_error_and_without_markup(make_studio: StudioMaker, tab: Tab) -> None:
    texts = json.loads(_run("hostile.mjs", "5000"))
    async with make_studio() as studio:
        await tab.open(f"http://127.0.0.1:{studio.port}/")
        await tab.evaluate(RENDER)
        for text in texts:
            await tab.evaluate(f"show({json.dumps(text)}, true)")
            assert await tab.evaluate("box.querySelector('script, iframe, img, style, object, embed, form')") is None
        assert tab.errors == []
