"""The page in a real browser: entry by ticket, a turn with a question, a reload, untrusted content."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import pytest

from agenticx import builtin_tools
from agenticx.attachments import MAX_ATTACHMENTS, MAX_TOTAL_BYTES
from agenticx.errors import ModelError
from agenticx.llms import ScriptedModel
from agenticx.llms.wrappers.retrying import RetryingModel
from agenticx.messages import ToolMessage, UserMessage
from agenticx.subagents.tools import session_tools
from agenticx.testing import call, say, usage
from tests.support.server.chromium import CHROMIUM, Tab, browser_tab
from tests.support.server.page import FILE_EVENTS, SHOWN, add_files, enter, file_parts, send_message
from tests.support.server.running_studio import StudioMaker
from tests.support.teams.configured import PAIR, team_file
from tests.support.wires.files import PDF, PNG, TEXT

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]


@pytest.fixture
async def tab() -> AsyncIterator[Tab]:
    async with browser_tab() as tab:
        yield tab


async def test_a_user_enters_by_ticket_allows_a_write_and_reads_the_answer(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(tools=builtin_tools(), model="demo") as studio:
        await enter(tab, studio)
        assert await tab.evaluate("location.href") == f"http://127.0.0.1:{studio.port}/"
        await send_message(tab, "Write hello.txt with the text Good morning")
        await tab.wait_for("document.querySelector('.allow')")
        assert "hello.txt" in await tab.evaluate("document.querySelector('.ask').innerText")
        assert "Good morning" in await tab.evaluate("document.querySelector('.ask').innerText")
        assert not (studio.workspace / "hello.txt").exists()
        await tab.evaluate("document.querySelector('.allow').click()")
        await tab.wait_for("document.getElementById('stop').hidden && document.querySelectorAll('.assistant')[1]")
        assert (studio.workspace / "hello.txt").read_text() == "Good morning"
        before = await tab.evaluate(SHOWN)
        assert "Allowed." in before

        await tab.reload()
        await tab.wait_for(f"{SHOWN} === {before!r}")
        assert tab.errors == []


@pytest.mark.shares_secrets
async def test_a_user_allows_a_kind_of_calls_for_the_session_and_always_and_revokes_it(
    make_studio: StudioMaker, tab: Tab
) -> None:
    paths = ["src/a.py", "src/b.py", "lib/c.py", "lib/d.py", "docs/<b>.md"]
    script = [call("file_write", {"path": path, "content": "x"}) for path in paths]
    last = call("bash_exec", {"command": "touch lib/e.py", "timeout": 60})
    async with make_studio(ScriptedModel([*script, last, "done"]), tools=builtin_tools()) as studio:
        await enter(tab, studio)
        await send_message(tab, "Write")
        for number, (button, kind) in enumerate(
            [("allow-session", "edit files in src/"), ("allow-always", "edit files in lib/"), ("allow", "docs/")], 1
        ):
            box = f"[...document.querySelectorAll('.ask')][{number - 1}]"
            await tab.wait_for(f"{box}?.querySelector('.{button}')")
            assert kind in await tab.evaluate(f"{box}.querySelector('.kinds').innerText")
            labels = await tab.evaluate(f"[...{box}.querySelectorAll('button')].map((each) => each.textContent)")
            order = ["Allow once", "Allow for this session:", "Always in this folder:", "Edit…", "Deny"]
            assert [one for one, text in zip(order, labels, strict=True) if not text.startswith(one)] == []
            if button == "allow":
                await tab.evaluate("document.getElementById('rules').open = true")
                revoking = "[...document.querySelectorAll('#rule-list .revoke')]"
                await tab.wait_for(f"{revoking}.length === 2")
                listed = await tab.evaluate("document.getElementById('rule-list').innerText")
                assert "allow edit path=src/**" in listed
                assert "in this session" in listed
                assert f"in {studio.workspace.resolve()}" in listed
                assert "from an answer" in listed
                form = "document.getElementById('explain')"
                await tab.evaluate(f"{form}.elements.arguments.value = 'cat .env'; {form}.requestSubmit()")
                explained = await tab.wait_for("document.getElementById('explained').innerText")
                assert explained.startswith("You would be asked (rule: protected).")
                assert "It names .env, a file that usually holds keys or passwords." in explained
                await tab.evaluate(f"{form}.elements.tool.value = 'file_write'; {form}.requestSubmit()")
                assert "no JSON" in await tab.wait_for("document.getElementById('rule-error').textContent")
                await tab.evaluate(f"{revoking}[0].click()")
                await tab.wait_for(f"{revoking}.length === 1")
                await tab.evaluate(f"{box}.querySelector('.exact input').click()")
                exact = await tab.evaluate(f"{box}.querySelector('.allow-always').textContent")
                assert exact == "Always in this folder: this file, whatever is written to it"
            await tab.evaluate(f"{box}.querySelector('.{button}').click()")
        again = await tab.wait_for("document.querySelectorAll('.ask')[3]?.innerText")
        assert "lib/e.py" in again
        box = "document.querySelectorAll('.ask')[3]"
        await tab.evaluate(f"{box}.querySelector('.edit-arguments').click()")
        labels = f"[...{box}.querySelectorAll('.edit label')]"
        assert await tab.evaluate(f"{labels}.map((one) => one.firstChild.data)") == ["command", "timeout (JSON)"]
        command, timeout = (f"{labels}[{place}].querySelector('textarea')" for place in (0, 1))
        allow = f"{box}.querySelector('.allow-edited').click()"
        await tab.evaluate(f"{command}.value = 'touch edited.txt'; {timeout}.value = '\"soon\"'; {allow}")
        refusal = await tab.wait_for(f"{box}.querySelector(':scope > .error')?.textContent")
        assert refusal.startswith("'arguments': 'timeout' should be ")
        await tab.evaluate(f"{timeout}.value = '30'; {allow}")
        await tab.wait_for(f"{SHOWN}.includes('done')")
        assert [(studio.workspace / name).exists() for name in ("edited.txt", "lib/e.py")] == [True, False]
        answers = await tab.evaluate("[...document.querySelectorAll('.ask .buttons')].map((row) => row.innerText)")
        assert answers == [
            "Allowed. Remembered for the session: allow edit path=src/**",
            "Allowed. Remembered always: allow edit path=lib/**",
            "Allowed.",
            "Allowed.",
        ]
        assert [error for error in tab.errors if "422" not in error] == []


WITH_PERSON = """
kind = "round_robin"
max_turns = 3
[[participants]]
name = "writer"
system_message = "Write."
[[participants]]
name = "person"
kind = "user"
[[participants]]
name = "critic"
system_message = "Judge."
"""


@pytest.mark.ci_lane
async def test_the_speeches_of_a_team_are_shown_once_with_names_and_its_person_is_asked(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio(ScriptedModel(["One.", "Two."])) as studio:
        team_file(studio.services.settings.home, WITH_PERSON)
        await studio.client.post("/api/sessions", json={"team": "pair"})
        await enter(tab, studio)
        await send_message(tab, "Write.")
        await tab.wait_for("document.querySelector('.ask textarea.answer')")
        assert await tab.evaluate("document.querySelector('.ask .note').innerText") == "person asks"
        await tab.evaluate("document.querySelector('.ask textarea.answer').value = 'Shorter.'")
        await tab.evaluate("document.querySelector('.ask textarea.answer').dispatchEvent(new Event('input'))")
        await tab.evaluate("document.querySelector('.ask .main').click()")
        await tab.wait_for(f"{SHOWN}.includes('The team stopped')")
        shown = (await tab.evaluate(SHOWN)).splitlines()
        assert shown[:3] == ["Write.", "writer", "One."]
        assert shown[-6:] == [
            *("Answer: Shorter.", "person", "Shorter.", "critic", "Two."),
            "The team stopped: Maximum number of turns 3 reached.",
        ]
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_the_reply_that_named_no_speaker_is_shown(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(ScriptedModel(["Who?"] * 3 + ["One."])) as studio:
        team_file(studio.services.settings.home, PAIR.replace("round_robin", "selector").replace("= 2", "= 1"))
        await studio.client.post("/api/sessions", json={"team": "pair"})
        await enter(tab, studio)
        await send_message(tab, "Write.")
        await tab.wait_for(f"{SHOWN}.includes('The team stopped')")
        note = "The model named no one speaker, so writer speaks. It said: Who?"
        assert (await tab.evaluate(SHOWN)).splitlines()[:4] == ["Write.", note, "writer", "One."]
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_the_subagents_of_a_session_are_listed_with_their_states(make_studio: StudioMaker, tab: Tab) -> None:
    spawn = call("spawn_subagent", {"task": "Find <b>it</b>", "name": "searcher"})
    model = ScriptedModel([[spawn, call("wait_subagents")], [say("Found."), usage(20, 3)], "It is found."])
    async with make_studio(model, tools=session_tools()) as studio:
        await enter(tab, studio)
        assert await tab.evaluate("document.getElementById('subagents').hidden")
        await send_message(tab, "Where is it?")
        await tab.wait_for(f"{SHOWN}.includes('It is found.')")
        listed = "document.getElementById('subagents').innerText"
        await tab.wait_for(f"{listed} === 'searcher-1: completed, 1 round, 23 tokens: Find <b>it</b>'")
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_a_user_answers_questions_with_an_option_and_in_other_words(make_studio: StudioMaker, tab: Tab) -> None:
    questions = [call("ask_user", {"text": "Which <b>colour</b>?", "options": ["red", "blue"]})]
    model = ScriptedModel([questions, [call("ask_user", {"text": "And why?"})], "Thanks."])
    async with make_studio(model, tools=builtin_tools()) as studio:
        await enter(tab, studio)
        await send_message(tab, "Ask me")
        await tab.wait_for("document.querySelectorAll('.ask .option').length === 2")
        assert "Which <b>colour</b>?" in await tab.evaluate("document.querySelector('.ask').innerText")
        assert await tab.evaluate("document.querySelector('.ask .main').disabled")  # without an answer of one's own
        await tab.evaluate("document.querySelectorAll('.ask .option')[1].click()")
        await tab.wait_for("document.querySelectorAll('.ask')[1]?.querySelector('.answer')")
        await tab.reload()
        field = await tab.wait_for("document.querySelectorAll('.ask')[1]?.querySelector('.answer') && 'there'")
        assert field == "there"
        write = "const field = document.querySelector('.ask .answer'); field.value = ' So <i>that</i> it fits. '"
        await tab.evaluate(f"(() => {{ {write}; field.dispatchEvent(new Event('input')); }})()")
        key = "new KeyboardEvent('keydown', {key: 'Enter', bubbles: true, cancelable: true})"
        await tab.evaluate(f"document.querySelector('.ask .answer').dispatchEvent({key})")
        shown = await tab.wait_for(f"{SHOWN}.includes('Thanks.') && {SHOWN}")
        assert "Answer: blue" in shown
        assert "Answer: So <i>that</i> it fits." in shown
        assert tab.errors == []
    results = [row.content for row in model.requests[2].messages if isinstance(row, ToolMessage)]
    assert results == ["blue", "So <i>that</i> it fits."]


@pytest.mark.ci_lane
@pytest.mark.shares_secrets
async def test_the_page_names_the_files_whose_instructions_the_model_gets(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio() as studio:
        (studio.workspace / "AGENTS.md").write_text("Use tabs.")
        await enter(tab, studio)
        shown = "document.getElementById('session-instructions').textContent"
        assert await tab.wait_for(shown) == "instructions: AGENTS.md"
        notice = await tab.wait_for("document.getElementById('session-trust').innerText")
        shown_digest = hashlib.sha256(b"Use tabs.").hexdigest()[:12]
        assert notice.startswith(f"AGENTS.md (sha256 {shown_digest}…) is not trusted: ")
        await tab.evaluate("document.querySelector('#session-trust button').click()")
        await tab.wait_for("document.getElementById('session-trust').hidden")
        assert studio.services.hub.trust is not None
        assert [one.path for one in studio.services.hub.trust.list().values()] == [str(studio.workspace / "AGENTS.md")]
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_a_tab_without_a_token_says_how_to_get_one(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio() as studio:
        await tab.open(f"http://127.0.0.1:{studio.port}/")
        shown = "document.getElementById('locked').innerText"
        assert "agx open" in await tab.wait_for(f"!document.getElementById('locked').hidden && {shown}")
        await tab.evaluate("location.hash = 'a-ticket-that-never-was'")
        assert "used already" in await tab.wait_for(f"{shown}.includes('used already') && {shown}")
        assert await tab.evaluate("location.hash") == ""


@pytest.mark.ci_lane
async def test_stop_ends_the_turn_and_a_denied_call_does_not_run(make_studio: StudioMaker, tab: Tab) -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "so not.", call("note", {"text": "y"})])
    async with make_studio(model) as studio:
        await enter(tab, studio)
        await send_message(tab, "one")
        await tab.wait_for("document.querySelector('.deny')")
        await tab.evaluate("document.querySelector('.deny').click()")
        assert "Denied." in await tab.wait_for(f"{SHOWN}.includes('so not.') && {SHOWN}")
        await tab.wait_for("document.getElementById('stop').hidden")
        await send_message(tab, "two")
        await tab.wait_for("document.querySelector('.deny')")
        await tab.evaluate("document.getElementById('stop').click()")
        assert "Stopped." in await tab.wait_for(f"{SHOWN}.includes('Stopped.') && {SHOWN}")


@pytest.mark.ci_lane
async def test_a_reason_for_a_denial_reaches_the_model_and_is_shown(make_studio: StudioMaker, tab: Tab) -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "so not."])
    async with make_studio(model) as studio:
        await enter(tab, studio)
        await send_message(tab, "one")
        await tab.wait_for("document.querySelector('.ask .reason')")
        await tab.evaluate("document.querySelector('.ask .reason').value = ' Use <b>the other</b> one. '")
        key = "new KeyboardEvent('keydown', {key: 'Enter', bubbles: true})"
        await tab.evaluate(f"document.querySelector('.ask .reason').dispatchEvent({key})")
        shown = await tab.wait_for(f"{SHOWN}.includes('so not.') && {SHOWN}")
        assert "Denied. Reason: Use <b>the other</b> one." in shown
        assert tab.errors == []
    (result,) = [row.content for row in model.requests[1].messages if isinstance(row, ToolMessage)]
    assert result == "Denied by the user. Reason: Use <b>the other</b> one."


HEADER = """(() => {
    const shown = (id) => document.getElementById(id).selectedOptions[0].textContent;
    return [shown('session-model'), shown('session-mode'), !document.getElementById('auto-warning').hidden];
})()"""


async def select(tab: Tab, id_: str, value: str) -> None:
    field = f"document.getElementById({id_!r})"
    await tab.evaluate(f"{field}.value = {value!r}, {field}.dispatchEvent(new Event('change'))")


@pytest.mark.ci_lane
async def test_the_header_shows_and_changes_the_model_and_the_mode(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio() as studio:
        session_id = await studio.session(name="Mine", model="demo", permission_mode="auto")
        path = f"/api/sessions/{session_id}"
        await enter(tab, studio)
        header = await tab.wait_for(f"document.querySelector('#title').textContent == 'Mine' && {HEADER}")
        assert header == ["demo", "auto: allow everything", True]
        await select(tab, "session-model", "")
        await studio.events_until(session_id, "session_changed")
        assert (await studio.client.get(path)).json()["model"] is None

        await studio.client.patch(path, json={"permission_mode": "plan"})  # in another window
        await tab.wait_for(f"{HEADER}[1] === 'plan: plan only'")
        assert await tab.evaluate(HEADER) == ["scripted (from settings)", "plan: plan only", False]

        await tab.evaluate("window.confirm = () => false")
        await select(tab, "session-mode", "auto")
        assert await tab.evaluate(HEADER) == ["scripted (from settings)", "plan: plan only", False]
        await tab.evaluate("window.confirm = () => true")
        await select(tab, "session-mode", "auto")
        await tab.wait_for(f"{HEADER}[2]")
        assert (await studio.client.get(path)).json()["permission_mode"] == "auto"
        assert tab.errors == []


PAYLOADS = (
    "<img src=x onerror=window.hit=1>",
    "<script>window.hit=1</script>",
    "<svg onload=window.hit=1>",
    "[x](javascript:window.hit=1)",
    "</div><iframe srcdoc='<script>parent.hit=1</script>'>",
)


@pytest.mark.promise("E6")
@pytest.mark.promise("I3")
async def test_content_is_rendered_as_text_with_hidden_characters_escaped(make_studio: StudioMaker, tab: Tab) -> None:
    odd = " ".join(PAYLOADS)
    hidden = "rm \u202etxt.exe\u200b \x1b[31m"
    model = ScriptedModel([[odd, call("note", {"text": odd + hidden})], odd])
    async with make_studio(model) as studio:
        await enter(tab, studio)
        await send_message(tab, odd)
        asked = await tab.wait_for("document.querySelector('.ask')?.textContent")
        assert PAYLOADS[0] in asked
        assert "\u202e" not in asked
        assert "\u200b" not in asked
        assert "\x1b" not in asked
        await tab.evaluate("document.querySelector('.allow').click()")
        await tab.wait_for("document.querySelectorAll('.assistant').length === 2")
        await tab.wait_for("document.getElementById('stop').hidden")
        assert await tab.evaluate("document.querySelector('#log :is(img, script, svg, iframe)')") is None
        assert await tab.evaluate("window.hit ?? null") is None
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_a_fallback_model_is_shown_with_the_reason(make_studio: StudioMaker, tab: Tab) -> None:
    dead = ScriptedModel([ModelError("dead:x could not be reached\u202e", code="provider.auth")], name="dead:x")
    model = RetryingModel(dead, [ScriptedModel(["Here."], name="acme:large")])
    async with make_studio(model) as studio:
        await enter(tab, studio)
        await send_message(tab, "hello")
        log = await tab.wait_for(f"{SHOWN}.includes('Here.') && {SHOWN}")
        assert "dead:x could not be reached\\u{202e}; asking acme:large." in log


# --- files ------------------------------------------------------------------------------------------------------------

ATTACHED = "document.getElementById('attached').innerText.replaceAll('×', '').split('\\n').join(' ').trim()"
ATTACHMENT_ERROR = "document.getElementById('attachment-error').textContent"


@pytest.mark.ci_lane
async def test_files_are_picked_dropped_and_pasted_shown_and_sent(make_studio: StudioMaker, tab: Tab) -> None:
    model = ScriptedModel(["seen", "and now"])
    async with make_studio(model) as studio:
        await enter(tab, studio)
        await add_files(tab, "picked", (PNG.name, file_parts(PNG.data)), ("unwanted.txt", "['x']"))
        await add_files(tab, "dropped", (PDF.name, file_parts(PDF.data)))
        await add_files(tab, "pasted", (TEXT.name, file_parts(TEXT.data)))
        await tab.wait_for("document.querySelectorAll('#attached li').length === 4")
        await tab.evaluate("document.querySelector('[aria-label=\"Remove unwanted.txt\"]').click()")
        shown = f"{PNG.name} ({PNG.size} bytes) {PDF.name} ({PDF.size} bytes) {TEXT.name} (8 bytes)"
        assert (await tab.evaluate(ATTACHED)).split() == shown.split()
        await send_message(tab, "What is this?")
        log = await tab.wait_for(f"document.getElementById('stop').hidden && {SHOWN}.includes('seen') && {SHOWN}")
        for file in (PNG, PDF, TEXT):
            assert f"Attached: {file.name} ({file.size} bytes)" in log
        assert await tab.evaluate("document.getElementById('attached').hidden")
        await send_message(tab, "And now?")
        await tab.wait_for(f"document.getElementById('stop').hidden && {SHOWN}.includes('and now')")
        assert tab.errors == []
    first, second = (
        [row for row in request.messages if isinstance(row, UserMessage)][-1] for request in model.requests
    )
    assert [file.data for file in first.attachments] == [PNG.data, PDF.data, TEXT.data]
    assert second.attachments == ()


@pytest.mark.ci_lane
async def test_rich_text_with_an_image_is_pasted_as_text(make_studio: StudioMaker, tab: Tab) -> None:
    rich = "for (const type of ['text/plain', 'text/html']) files.items.add('x', type);"
    async with make_studio(ScriptedModel([])) as studio:
        await enter(tab, studio)
        await tab.evaluate(
            f"(() => {{ const files = new DataTransfer(); {rich} files.items.add(new File(['a'], 'a.png'));"
            f"{FILE_EVENTS['pasted']}; }})()"
        )
        await add_files(tab, "pasted", ("b.txt", "['b']"))
        assert await tab.wait_for(f"{ATTACHED}.includes('b.txt') && {ATTACHED}") == "b.txt (1 byte)"


@pytest.mark.ci_lane
async def test_a_file_that_cannot_be_attached_is_refused_and_the_others_stay(
    make_studio: StudioMaker, tab: Tab
) -> None:
    png = "Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a)"
    pdf = "'%PDF-1.7'"
    refusals = {
        "p.png": (f"[{png}, new Uint8Array(5 * 2**20)]", "p.png has 5.01 MiB; an image may have 5 MiB."),
        "d.pdf": (f"[{pdf}, new Uint8Array(12 * 2**20)]", "d.pdf has 12.01 MiB; a PDF may have 12 MiB."),
        "t.png": ("['x'.repeat(2**19 + 1)]", "t.png has 512.01 KiB; a text file may have 512 KiB."),
    }
    async with make_studio(ScriptedModel(["so"])) as studio:
        await enter(tab, studio)
        for name, (content, sentence) in refusals.items():
            await add_files(tab, "dropped", (name, content), ("a.txt", "['a']"))
            assert await tab.wait_for(f"{ATTACHMENT_ERROR}.startsWith({name!r}) && {ATTACHMENT_ERROR}") == sentence
        await tab.wait_for("document.querySelectorAll('#attached li').length === 3")
        await add_files(tab, "dropped", *[(f"{n}.txt", "['a']") for n in range(MAX_ATTACHMENTS - 2)])
        sentence = f"{MAX_ATTACHMENTS - 3}.txt is one too many: a message may have {MAX_ATTACHMENTS} files."
        assert await tab.wait_for(f"{ATTACHMENT_ERROR}.includes('too many') && {ATTACHMENT_ERROR}") == sentence


@pytest.mark.ci_lane
async def test_a_file_refused_by_the_server_loses_nothing_in_the_page(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(ScriptedModel([])) as studio:
        await enter(tab, studio)
        half = f"['%PDF-1.7', new Uint8Array({MAX_TOTAL_BYTES // 2})]"
        await add_files(tab, "dropped", ("one.pdf", half), ("two.pdf", half))
        sentence = "two.pdf does not fit: the files of a message may have 16 MiB in total."
        assert await tab.wait_for(f"{ATTACHMENT_ERROR}.startsWith('two') && {ATTACHMENT_ERROR}") == sentence
        await add_files(tab, "dropped", ("odd.txt", "[Uint8Array.of(0, 1, 2)]"))
        await tab.wait_for("document.querySelectorAll('#attached li').length === 2")
        await tab.evaluate("document.getElementById('send').click()")
        assert (
            await tab.wait_for(f"{ATTACHMENT_ERROR}.startsWith('Write') && {ATTACHMENT_ERROR}")
            == "Write a message for the attached files."
        )
        await send_message(tab, "Look")
        refused = await tab.wait_for(f"{ATTACHMENT_ERROR}.includes('neither') && {ATTACHMENT_ERROR}")
        assert refused.startswith("'odd.txt' is neither a PNG, JPEG, GIF or WebP image, nor a PDF, nor text in UTF-8")
        assert await tab.evaluate("document.querySelectorAll('#attached li').length") == 2
        assert await tab.evaluate("document.getElementById('input').value") == "Look"


async def click(tab: Tab, selector: str) -> None:
    await tab.wait_for(f"document.querySelector({selector!r})")
    await tab.evaluate(f"document.querySelector({selector!r}).click()")


@pytest.mark.ci_lane
async def test_a_user_finds_renames_pins_and_deletes_sessions(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(ScriptedModel(["We meet in 会议室 three."])) as studio:
        other = await studio.session(name="Another")
        await studio.session(name=None)
        await enter(tab, studio)
        await send_message(tab, "Where do we <b>meet</b>?")
        await tab.wait_for("document.querySelector('#title').textContent == 'Where do we <b>meet</b>?'")
        find = "document.getElementById('find')"
        listed = "[...document.querySelectorAll('#sessions button')].map((row) => row.textContent).join('|')"
        await tab.wait_for(f"{listed} == 'Where do we <b>meet</b>?|Another'")
        await tab.evaluate(f"{find}.value = '会议'; {find}.dispatchEvent(new Event('input'))")
        await tab.wait_for("document.querySelector('.match mark')?.textContent == '会议'")
        assert await tab.evaluate(listed) == "Where do we <b>meet</b>?"
        await tab.evaluate(f"{find}.value = ''; {find}.dispatchEvent(new Event('input'))")
        await tab.wait_for(f"{listed}.endsWith('|Another')")
        await tab.evaluate("document.querySelectorAll('#sessions button')[1].click()")
        await tab.wait_for("document.querySelector('#title').textContent == 'Another'")
        await tab.evaluate("window.prompt = () => ' Mine '; window.confirm = () => true")
        await click(tab, "#actions [name=rename]")
        await click(tab, "#actions [name=pin]")
        await tab.wait_for(f"{listed} == '★ Mine|Where do we <b>meet</b>?'")
        assert (await studio.client.get(f"/api/sessions/{other}")).json()["name"] == "Mine"
        await click(tab, "#actions [name=archive]")
        await tab.wait_for(f"{listed} == 'Where do we <b>meet</b>?'")
        await tab.evaluate("document.getElementById('archived').click()")
        await tab.wait_for(f"{listed} == '★ Mine'")
        deletes = "document.querySelector('#actions [name=delete]').click()"
        await tab.evaluate(f"{deletes}, document.getElementById('archived').click()")
        await tab.wait_for("document.querySelector('#title').textContent == 'Where do we <b>meet</b>?'")
        assert (await studio.client.get(f"/api/sessions/{other}")).status_code == 404


async def test_a_user_rewinds_undoes_that_edits_and_forks(make_studio: StudioMaker, tab: Tab) -> None:
    edit = call("file_write", {"path": "a.txt", "content": "two"})
    model = ScriptedModel(["One.", ["Writing.", edit], "Two.", "Three."])
    async with make_studio(model, tools=builtin_tools(), permission_mode="auto") as studio:
        session_id = await studio.session(name="Steps")
        await enter(tab, studio)
        await send_message(tab, "first")
        await tab.wait_for("document.querySelectorAll('.message-actions').length == 2")
        await send_message(tab, "second")
        await tab.wait_for("document.querySelectorAll('.message-actions').length == 4")
        shown = (
            "[...document.querySelectorAll('#log .text')].filter((e) => !e.hidden).map((e) => e.textContent).join('|')"
        )
        assert await tab.evaluate(shown) == "first|One.|second|Writing.|Two."
        await tab.evaluate("document.querySelectorAll('.message-actions')[1].querySelector('button').click()")
        await tab.wait_for(f"{shown} == 'first|One.'")
        await tab.wait_for("document.querySelector('#log').innerText.includes('a.txt: removed')")
        assert not (studio.workspace / "a.txt").exists()
        await click(tab, ".undo")
        await tab.wait_for(f"{shown} == 'first|One.|second|Writing.|Two.'")
        assert (studio.workspace / "a.txt").read_text() == "two"
        await tab.evaluate("document.querySelectorAll('.message-actions')[2].querySelector('button').click()")
        await tab.wait_for(f"document.querySelector('#input').value == 'second' && {shown} == 'first|One.'")
        await tab.evaluate("document.getElementById('input').value = ''")
        await send_message(tab, "third")
        await tab.wait_for(f"{shown} == 'first|One.|third|Three.'")
        await tab.reload()
        await tab.wait_for(f"{shown} == 'first|One.|third|Three.'")
        listed = (await studio.client.get(f"/api/sessions/{session_id}/messages")).json()["messages"]
        assert [message["content"] for message in listed] == ["first", "One.", "third", "Three."]
        await tab.evaluate("document.querySelectorAll('.message-actions')[1].querySelectorAll('button')[1].click()")
        await tab.wait_for("document.querySelector('#title').textContent == 'Steps (fork)'")
        await tab.wait_for(f"{shown} == 'first|One.'")
