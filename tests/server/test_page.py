"""The page in a real browser: entry by ticket, a turn with a question, a reload, untrusted content."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from agenticx import builtin_tools
from agenticx.attachments import MAX_ATTACHMENTS, MAX_TOTAL_BYTES
from agenticx.errors import ModelError
from agenticx.llms import RetryingModel, ScriptedModel
from agenticx.messages import ToolMessage, UserMessage
from agenticx.subagents import session_tools
from agenticx.testing import FakeOpenAIServer, call, fail, say, status, usage
from tests.support.server.chromium import CHROMIUM, Tab
from tests.support.server.page import (
    DECISION,
    FILE_EVENTS,
    INPUT,
    SHOWN,
    STOPPED,
    TITLE,
    add_files,
    button,
    check,
    click,
    enter,
    field,
    file_parts,
    fill,
    press_button,
    send_and_be_asked,
    send_message,
    text_of,
    write,
)
from tests.support.server.running_studio import IN_A_FILE, StudioMaker
from tests.support.teams.configured import PAIR, team_file
from tests.support.wires.files import PDF, PNG, TEXT

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

ASKED = text_of("[aria-label=Decision]")
STATUS = text_of("#status")
SAID = text_of("#message")


async def test_a_user_enters_by_ticket_allows_a_write_and_reads_the_answer(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(tools=builtin_tools(), model="demo") as studio:
        await tab.open(f"http://127.0.0.1:{studio.port}/#{await studio.services.tickets.issue()}")
        await tab.wait_for("document.getElementById('demo-notice') && true")
        assert await tab.evaluate("location.href") == f"http://127.0.0.1:{studio.port}/#/new"
        await send_message(tab, "Write hello.txt with the text Good morning")
        asked = await tab.wait_for(f"{ASKED}.includes('Good morning') && {ASKED}")
        assert "hello.txt" in asked
        assert not (studio.workspace / "hello.txt").exists()
        await click(tab, "Allow once", DECISION)
        await tab.wait_for(f"{STOPPED} && document.querySelectorAll('.answer')[1]")
        assert (studio.workspace / "hello.txt").read_text() == "Good morning"
        before = await tab.evaluate(SHOWN)
        assert "Allowed once by you" in before

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
        for answer, kind in [
            ("Allow for this session", "edit files in src/"),
            ("Always in this folder", "edit files in lib/"),
            ("Allow once", "docs/"),
        ]:
            await tab.wait_for(f"{ASKED}.includes({kind!r})")
            labels = await tab.evaluate(f"[...{DECISION}.querySelectorAll('button')].map((each) => each.textContent)")
            order = ["Allow once", "Allow for this session:", "Always in this folder:", "Edit…", "Deny"]
            assert [one for one, text in zip(order, labels, strict=True) if not text.startswith(one)] == []
            if answer == "Allow once":
                await revoke_one(tab, str(studio.workspace.resolve()))
                await check(tab, "only this file, whatever is written to it", DECISION)
                await tab.wait_for(f"{button('Always in this folder: this file', DECISION)} && true")
            await click(tab, answer, DECISION)
        await tab.wait_for(f"{ASKED}.includes('lib/e.py')")
        await click(tab, "Edit…", DECISION)
        await fill(tab, "command", "touch edited.txt", DECISION)
        await fill(tab, "timeout", "0", DECISION)
        await click(tab, "Allow edited", DECISION)
        refusal = await tab.wait_for(f"{DECISION}.querySelector('[role=alert]')?.textContent")
        assert refusal.startswith("'timeout' should be ")
        await fill(tab, "timeout", "30", DECISION)
        await click(tab, "Allow edited", DECISION)
        await tab.wait_for(f"{SHOWN}.includes('done')")
        assert [(studio.workspace / name).exists() for name in ("edited.txt", "lib/e.py")] == [True, False]
        answers = "[...document.querySelectorAll('#log .request summary')].map((one) => one.innerText.split(' · ')[0])"
        assert await tab.evaluate(answers) == [
            "Allowed for this session by you: edit files in src/",
            "Allowed always in this folder by you: edit files in lib/",
            "Allowed once by you",
            "Allowed with changes by you",
        ]
        card = "[...document.querySelectorAll('#log .card.call')].find((one) => one.innerText.includes('src/b.py'))"
        await tab.evaluate(f"{card}.querySelector('summary').click()")
        await tab.wait_for(f"{card}.innerText.includes('Not asked about: your rule allows it to edit files in src/.')")
        assert [error for error in tab.errors if "422" not in error] == []


async def revoke_one(tab: Tab, workspace: str) -> None:
    """Look at the two rules in the settings, revoke the first, and have calls explained."""
    await tab.evaluate("location.hash = '#/settings/rules'")
    await tab.wait_for("document.querySelectorAll('#rule-list .revoke').length === 2")
    listed = await tab.evaluate(text_of("#rule-list"))
    raw = "[...document.querySelectorAll('#rule-list details:not([open]) code')].map((one) => one.textContent)"
    assert "allow edit path=src/**" in await tab.evaluate(raw)
    for text in ("It is allowed to edit files in src/", "in this session", f"in {workspace}", "from an answer"):
        assert text in listed
    await fill(tab, "command", "cat .env", "document.getElementById('explain')")
    await click(tab, "Explain")
    explained = await tab.wait_for(text_of("#explained"))
    assert explained.startswith("You would be asked. It")
    assert "It names .env, a file that usually holds keys or passwords." in explained
    await fill(tab, "command", "bash -c 'echo hi'; git add a", "document.getElementById('explain')")
    await click(tab, "Explain")
    explained = await tab.wait_for(f"{text_of('#explained')}.includes('bash -c') && {text_of('#explained')}")
    assert "so the mode “Asks before changes” does: reads are allowed, all else is asked about." in explained
    codes = await tab.evaluate("[...document.querySelectorAll('#explained code')].map((one) => one.innerText)")
    assert codes == ["bash -c 'echo hi'", "bash", "git add a"]
    assert "`" not in await tab.evaluate(text_of("#settings"))
    assert "mode default" not in explained
    await fill(tab, "Call", "file_write")
    await fill(tab, "path", "src/new.py", "document.getElementById('explain')")
    await click(tab, "Explain")
    explained = await tab.wait_for(text_of("#explained"))
    assert explained.startswith("It would run without a question, by your rule: edit files in src/.")
    await click(tab, "Revoke: It is allowed to edit files in src/")
    await tab.wait_for("document.querySelectorAll('#rule-list .revoke').length === 1")
    await tab.evaluate("location.hash = '#/new'")  # no session of the folder is shown
    await tab.wait_for("document.querySelector('main.new-session') && true")
    await tab.evaluate("location.hash = '#/settings/rules'")
    places = f"[...({field('Show')}?.options ?? [])].map((one) => one.text)"
    assert await tab.wait_for(f"{places}.length === 2 && {places}") == [
        "all rules, of each folder",
        f"rules that hold in {workspace}",
    ]
    await fill(tab, "Show", workspace)
    await tab.wait_for(
        f"{text_of('#rule-list')}.startsWith('It is allowed to edit files in lib/ in {workspace}, since ')"
    )
    await fill(tab, "Call", "file_write")
    await fill(tab, "path", "lib/new.py", "document.getElementById('explain')")
    await click(tab, "Explain")
    await tab.wait_for(f"{text_of('#explained')}.startsWith('It would run without a question, by your rule: ')")
    await click(tab, "Revoke")
    await tab.wait_for(f"{text_of('#rule-list')}.startsWith('No rules hold here.')")
    await click(tab, "Close settings")


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
        asked = await tab.wait_for(f"{ASKED}.startsWith('The team waits for you') && {ASKED}")
        assert "One." in asked
        assert "turn to speak" not in asked
        await fill(tab, "Your answer", "Shorter.", DECISION)
        await click(tab, "Answer", DECISION)
        await tab.wait_for(f"{SHOWN}.includes('The team stopped')")
        shown = (await tab.evaluate(SHOWN)).splitlines()
        assert shown[:5] == ["Write.", "writer", "One.", "You", "Shorter."]  # the answer is said once
        assert shown[5:] == ["critic", "Two.", "The team stopped: Maximum number of turns 3 reached."]
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
    search = [spawn, call("wait_subagents")]
    refused = [fail(ModelError("no", code="provider.auth"))]
    model = ScriptedModel([search, [say("Found."), usage(20, 3)], "It is found.", search, refused, "Not found."])
    async with make_studio(model, tools=session_tools()) as studio:
        await enter(tab, studio)
        await send_message(tab, "Where is it?")
        await tab.wait_for(f"{SHOWN}.includes('It is found.')")
        await click(tab, "Show preview")
        await click(tab, "Agents", "document.getElementById('pane')")
        listed = text_of("#pane-content")
        listed = await tab.wait_for(f"{listed}.includes('searcher-1') && {listed}")
        assert "Find <b>it</b>" in listed
        assert "23 tokens" in listed
        await send_message(tab, "And the other one?")
        await tab.wait_for(f"{SHOWN}.includes('Not found.')")
        failed = text_of("#log [data-agent=searcher-2] .error")
        assert await tab.wait_for(failed) == "The provider did not accept the key. Change key"
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_a_user_answers_questions_with_an_option_and_in_other_words(make_studio: StudioMaker, tab: Tab) -> None:
    questions = [call("ask_user", {"text": "Which <b>colour</b>, **please**?", "options": ["red", "blue"]})]
    model = ScriptedModel([questions, [call("ask_user", {"text": "And why?"})], "Thanks."])
    async with make_studio(model, tools=builtin_tools()) as studio:
        await enter(tab, studio)
        await send_message(tab, "Ask me")
        assert "Which <b>colour</b>, please?" in await tab.wait_for(f"{ASKED}.includes('blue') && {ASKED}")
        answering = "[...document.querySelectorAll('[aria-label=Decision] button')].at(-1).disabled"
        assert await tab.evaluate(answering)  # without an answer of one's own
        await click(tab, "“blue”", DECISION)
        await tab.wait_for(f"{ASKED}.includes('And why?')")
        await tab.reload()
        await fill(tab, "Your answer", " So <i>that</i> it fits. ", DECISION)
        await tab.wait_for(f"!{answering}")
        await tab.evaluate(f"{field('Your answer', DECISION)}.focus()")
        await tab.press("Enter")
        shown = await tab.wait_for(f"{SHOWN}.includes('Thanks.') && {SHOWN}")
        assert "The agent asked: “Which <b>colour</b>, please?” – you answered: “blue”" in shown
        assert "you answered: “So <i>that</i> it fits.”" in shown
        assert tab.errors == []
    results = [row.content for row in model.requests[2].messages if isinstance(row, ToolMessage)]
    assert results == ["blue", "So <i>that</i> it fits."]


@pytest.mark.ci_lane
@pytest.mark.shares_secrets
async def test_a_file_with_instructions_is_named_and_once_it_is_trusted_a_question_is_asked_anew(
    make_studio: StudioMaker, tab: Tab
) -> None:
    script = [call("file_write", {"path": "a.txt", "content": "a"}), "done"]
    async with make_studio(ScriptedModel(script), tools=builtin_tools()) as studio:
        folder = studio.workspace / "app"
        for made in (studio.workspace / ".git", folder):
            made.mkdir()
        (studio.workspace / "AGENTS.md").write_text(
            "Use tabs.\u202e"
        )  # above the workspace, whose tools cannot read it
        session_id = await studio.session(workspace=str(folder))
        await enter(tab, studio)
        await tab.evaluate(f"location.hash = '#/s/{session_id}'")
        notice = await tab.wait_for(text_of("#session-trust"))
        assert notice.startswith("../AGENTS.md is not trusted.")
        await click(tab, "Leave ../AGENTS.md untrusted")  # as long as it stays as it is
        await tab.wait_for("!document.getElementById('session-trust')")
        await click(tab, "Session menu")
        assert await tab.wait_for(text_of("#session-instructions")) == "Instructions: ../AGENTS.md"
        await click(tab, "Instructions that are not trusted")
        await click(tab, "Read ../AGENTS.md")
        await tab.wait_for(f"{text_of('#session-trust pre')} === 'Use tabs.⟨U+202E⟩'")
        await send_and_be_asked(tab, "Write")
        untrusted = "The conversation has instructions that you have not trusted (../AGENTS.md)"
        reasons = f"[...{DECISION}.querySelectorAll('.reasons li')].map((one) => one.innerText)"
        assert await tab.evaluate(reasons) == [
            "It creates a file: 1 line, 1 byte.",
            f"{untrusted}; the call may have been their idea.",
        ]
        await click(tab, "Trust ../AGENTS.md")
        await tab.wait_for("!document.getElementById('session-trust')")
        await tab.wait_for(f"{SHOWN}.includes('Asked anew, as the reasons for the question had changed')")
        await click(tab, "Allow once", DECISION)
        shown = await tab.wait_for(f"{SHOWN}.includes('done') && {SHOWN}")
        assert "Allowed once by you" in shown
        assert "Denied" not in shown
        assert studio.services.hub.trust is not None
        assert [one.path for one in studio.services.hub.trust.list().values()] == [str(studio.workspace / "AGENTS.md")]
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_a_tab_without_a_token_says_how_to_get_one(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio() as studio:
        await tab.open(f"http://127.0.0.1:{studio.port}/")
        shown = text_of("#locked")
        assert "agx open" in await tab.wait_for(shown)
        await tab.evaluate("location.hash = 'a-ticket-that-never-was'")
        assert "used already" in await tab.wait_for(f"{shown}.includes('used already') && {shown}")
        assert await tab.evaluate("location.hash") == ""
        await tab.open_beside(f"http://127.0.0.1:{studio.port}/#{await studio.services.tickets.issue()}")
        await tab.wait_for("document.getElementById('input') && true")  # it is signed in with the other tab


@pytest.mark.ci_lane
async def test_stop_ends_the_turn_and_a_denied_call_does_not_run(make_studio: StudioMaker, tab: Tab) -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "so not.", call("note", {"text": "y"})])
    async with make_studio(model) as studio:
        await enter(tab, studio)
        await send_message(tab, "one")
        await click(tab, "Deny", DECISION)
        assert "Denied by you" in await tab.wait_for(f"{SHOWN}.includes('so not.') && {SHOWN}")
        await tab.wait_for(STOPPED)
        await send_and_be_asked(tab, "two")
        await click(tab, "Stop")
        await tab.wait_for(f"{SHOWN}.includes('Stopped by you') && !{DECISION}")


@pytest.mark.ci_lane
async def test_a_reason_for_a_denial_reaches_the_model_and_is_shown(make_studio: StudioMaker, tab: Tab) -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "so not."])
    async with make_studio(model) as studio:
        await enter(tab, studio)
        await send_message(tab, "one")
        await fill(tab, "Tell the agent why", " Use <b>the other</b> one. ", DECISION)
        await tab.wait_for(f"{button('Deny', DECISION)} && true")
        await tab.evaluate(f"{field('Tell the agent why', DECISION)}.focus()")
        await tab.press("Enter")
        shown = await tab.wait_for(f"{SHOWN}.includes('so not.') && {SHOWN}")
        assert "Denied by you: Use <b>the other</b> one." in shown
        assert tab.errors == []
    (result,) = [row.content for row in model.requests[1].messages if isinstance(row, ToolMessage)]
    assert result == "Denied by the user. Reason: Use <b>the other</b> one."


HEADER = """(() => {
    const shown = (id) => document.getElementById(id)?.selectedOptions[0]?.textContent.trim().split(' · ')[0];
    return [shown('session-model'), shown('session-mode'), Boolean(document.getElementById('auto-warning'))];
})()"""


PROMPT = "Explain what the files in this folder do."


@pytest.mark.ci_lane
async def test_the_model_and_the_mode_of_a_session_are_shown_and_changed(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio() as studio:
        session_id = await studio.session(name="Mine", model="demo", permission_mode="auto")
        path = f"/api/sessions/{session_id}"
        await enter(tab, studio, "#/new")
        listed = f"[...({field('Model')}?.options ?? [])].map((one) => one.text)"
        listed = await tab.wait_for(f"{listed}.length > 2 && {listed}")
        noted = f"JSON.stringify([{text_of('#demo-notice')}, document.querySelector('.prompts button').innerText])"
        demo = "The demo model is chosen. It is a script; you can choose another model below."
        for model, shown in (("demo", [demo, "List the files in this folder."]), ("", ["", PROMPT])):
            await fill(tab, "Model", model)
            await tab.wait_for(f"{noted} === {json.dumps(json.dumps(shown, separators=(',', ':')))}")
        await tab.evaluate(f"location.hash = '#/s/{session_id}'")
        header = await tab.wait_for(f"{TITLE} == 'Mine' && {HEADER}[0] === 'demo' && {HEADER}")
        assert header == ["demo", "Runs everything without asking, except harmful calls", True]
        assert listed[1] == "scripted · tools"  # the ones that can be used come first
        assert "demo · $0 · tools" in listed  # as in the report of the usage
        await tab.evaluate(f"{field('Model')}.focus()")
        await tab.press("End")  # the arrows choose, too, in a list that is not open
        await tab.wait_for(f"{field('Model')}.value === 'demo'")
        await tab.evaluate("document.getElementById('session-model').dispatchEvent(new Event('pointerdown'))")
        await fill(tab, "Model", "add key")
        await tab.wait_for("location.hash === '#/settings/models' && document.activeElement.type === 'password'")
        rows = "[...document.querySelectorAll('table.models tr')].map((row) => row.innerText)"
        others = await tab.wait_for(f"{rows}.some((text) => text.startsWith('anthropic:')) && {rows}")
        assert not [text for text in listed if text.startswith("anthropic:")]
        assert re.fullmatch(r"Add key… \(\d+ more models\)", listed[-1])
        reasons = [text for text in others if text.startswith("anthropic:")]
        assert "ANTHROPIC_API_KEY is not set" in reasons[0]
        assert re.search(r"200,000\s+3.00 / 15.00\s+images, tools, thinking", "".join(reasons))
        await tab.evaluate("history.back()")
        await tab.wait_for(f"{HEADER}[0] === 'demo'")
        await fill(tab, "Model", "")
        await studio.events_until(session_id, "session_changed")
        assert (await studio.client.get(path)).json()["model"] is None

        await studio.client.patch(path, json={"permission_mode": "plan"})  # in another window
        await tab.wait_for(f"{HEADER}[1] === 'Plans only'")
        assert await tab.evaluate(HEADER) == ["scripted (from settings)", "Plans only", False]
        await click(tab, "Show preview")
        shown = (
            "[...document.querySelectorAll('#session-folder, #session-mode-text')].map((one) => one.clientWidth > 40)"
        )
        await tab.wait_for(f"document.getElementById('pane') && {shown}.join() === 'true,true'")
        assert await tab.evaluate(f"{field('Permissions')}.checkVisibility()")

        await fill(tab, "Permissions", "auto")
        await click(tab, "Cancel", "document.querySelector('dialog')")
        assert await tab.evaluate(HEADER) == ["scripted (from settings)", "Plans only", False]
        await fill(tab, "Permissions", "auto")
        await click(tab, "Run everything", "document.querySelector('dialog')")
        await tab.wait_for(f"{HEADER}[2]")
        assert (await studio.client.get(path)).json()["permission_mode"] == "auto"
        assert tab.errors == []


@IN_A_FILE
@pytest.mark.ci_lane
async def test_a_key_that_is_not_stored_stays_in_its_dialog_which_says_why(
    make_studio: StudioMaker, tab: Tab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AGX_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(sys.modules, "keyring", None)
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    dialog = "document.querySelector('dialog[open]')"
    shown = f"JSON.stringify([{text_of('dialog[open] [role=alert]')}, {dialog}?.querySelector('input').value])"
    buttons = f"[...{dialog}.querySelectorAll('button')].map((one) => one.innerText)"
    async with make_studio() as studio:
        await enter(tab, studio, "#/settings/models")
        await click(tab, "Add key of anthropic")
        await fill(tab, "Key of anthropic", "canary\u200b-key", dialog)
        await click(tab, "Store key", dialog)
        error, typed = json.loads(await tab.wait_for(f"{shown}.includes('not stored') && {shown}"))
        assert error.startswith("The key was not stored: the key has blanks, control or non-ASCII characters within")
        assert typed == "canary\u200b-key"
        assert await tab.evaluate(buttons) == ["Store key", "Cancel"]
        await fill(tab, "Key of anthropic", "canary-key", dialog)
        await click(tab, "Store key", dialog)
        error, typed = json.loads(await tab.wait_for(f"{shown}.includes('could not be tested') && {shown}"))
        assert (error.split(":")[0], typed) == ("The key was not stored", "canary-key")
        assert await tab.evaluate(buttons) == ["Store key", "Store without testing", "Cancel"]
        assert (await studio.client.get("/api/keys")).json() == {"keys": []}
        focused = "document.activeElement.ariaLabel === 'Change key of anthropic'"  # it was stored from far below
        stored = f"!{dialog} && {SAID} === 'The key of anthropic is stored.' && {focused}"
        places = "addEventListener('focusin', (event) => { focused.push(event.target.localName); })"
        await tab.evaluate(f"window.focused = []; {places}")
        await press_button(tab, "Store without testing", dialog)
        await tab.wait_for(f"{stored} && !{button('Add key of anthropic')}")
        assert "tr" not in await tab.evaluate("focused")  # beside the button that was pressed
        await click(tab, "Change key of anthropic")
        await tab.wait_for(f"{text_of('dialog[open]')}.includes('Change the key of anthropic')")
        await click(tab, "Cancel", dialog)
        await tab.wait_for(f"!{dialog}")
        for answer, said in (("Cancel", ""), ("Remove key", "The key of anthropic is removed.")):
            await tab.evaluate(f"{button('Dismiss the message')}?.click()")
            await click(tab, "Remove key of anthropic")
            await tab.wait_for(f"{text_of('dialog[open] h2')} === 'Remove the key of anthropic?'")
            await click(tab, answer, dialog)
            await tab.wait_for(f"!{dialog} && {SAID} === {said!r}")
            assert len((await studio.client.get("/api/keys")).json()["keys"]) == (answer == "Cancel")
        await tab.wait_for(f"!{button('Remove key of anthropic')}")
        await studio.client.put("/api/keys/openai-chat", json={"key": "canary-key"})  # which openai shares
        await tab.reload()
        await click(tab, "Remove key of openai, openai-chat")
        await tab.wait_for(f"{text_of('dialog[open] h2')} === 'Remove the key of openai, openai-chat?'")
        await click(tab, "Remove key", dialog)
        await tab.wait_for(f"!{dialog} && {text_of('.rows')} === 'No provider has a key.'")
        await click(tab, "Add key of anthropic")
        assert "It is sent to anthropic for a test" in await tab.wait_for(text_of("dialog[open] p"))
        await fill(tab, "Key of anthropic", "canary-key", dialog)
        asked = "performance.getEntriesByType('resource').find(({ name }) => name.endsWith('/state/asked.js')).name"
        again = f"import({asked}).then(({{ ask }}) => ask({{ title: 'Another', action: 'Do it' }}))"
        assert await tab.evaluate(again) is None  # what is typed stays
        await click(tab, "Store key", dialog)
        await tab.wait_for(f"{shown}.includes('could not be tested')")
        await click(tab, "Cancel", dialog)
        assert await tab.evaluate("document.querySelectorAll('main [role=alert]').length") == 0
        assert [error for error in tab.errors if "422" not in error and "503" not in error] == []


@IN_A_FILE
@pytest.mark.ci_lane
async def test_a_key_is_added_from_the_first_page_and_changed_after_its_provider_refuses_it(
    make_studio: StudioMaker, tab: Tab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if re.search(r"_API_KEY$|_BASE_URL$|^HF_TOKEN$", name)]:
        monkeypatch.delenv(name)
    for name in ("OLLAMA", "LMSTUDIO", "LLAMACPP", "VLLM"):
        monkeypatch.setenv(f"{name}_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("AGX_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(sys.modules, "keyring", None)
    dialog = "document.querySelector('dialog[open]')"
    typing = "document.activeElement.type === 'password'"
    async with FakeOpenAIServer([status(401, "no"), "Hello."]) as provider, make_studio(model=None) as studio:
        monkeypatch.setenv("GROQ_BASE_URL", provider.base_url)
        await enter(tab, studio, "#/settings/models/key/groq")  # as a link of another page could say
        await tab.wait_for(f"{button('Add key of groq')} && true")
        assert not await tab.evaluate(f"Boolean({dialog})")
        await click(tab, "Close settings")
        await click(tab, "Add a key", "document.getElementById('demo-notice')")
        await tab.wait_for(f"{text_of('dialog[open] h2')} === 'Add the key of a provider' && {typing}")
        await fill(tab, "Provider", "groq", dialog)
        await fill(tab, "Key", "canary-one", dialog)
        await click(tab, "Store key", dialog)
        focused = "document.activeElement.ariaLabel === 'Change key of groq'"
        await tab.wait_for(f"!{dialog} && {SAID} === 'The key of groq is stored.' && {focused}")
        await click(tab, "Close settings")

        await send_message(tab, "hello")
        await tab.wait_for(f"{SHOWN}.includes('The provider did not accept the key.')")
        await click(tab, "Change key", "document.getElementById('log')")
        await tab.wait_for(f"{text_of('dialog[open] h2')} === 'Change the key of groq' && {typing}")
        await fill(tab, "Key of groq", "canary-two", dialog)
        await click(tab, "Store key", dialog)
        await tab.wait_for(f"!{dialog} && {SAID} === 'The key of groq is stored.'")
        await tab.evaluate("history.back()")
        await click(tab, "Try again")
        await tab.wait_for(f"{SHOWN}.endsWith('Hello.')")
        assert provider.requests[-1].headers["authorization"] == "Bearer canary-two"
        assert tab.errors == []

        monkeypatch.delenv("GROQ_BASE_URL")
        session_id = (await tab.evaluate("location.hash")).removeprefix("#/s/")
        model = {"model": "groq:openai/gpt-oss-120b"}
        assert (await studio.client.patch(f"/api/sessions/{session_id}", json=model)).status_code == 200
        assert (await studio.client.delete("/api/keys/groq")).status_code == 204
        refused = text_of("#attachment-error")
        await send_message(tab, "Again")
        await tab.wait_for(f"{refused} === 'The model groq:openai/gpt-oss-120b needs a key. Add key'")
        assert await tab.evaluate(INPUT) == "Again"
        await tab.click("document.querySelector('#attachment-error a')")
        await tab.wait_for(f"{text_of('dialog[open] h2')} === 'Add the key of groq' && {typing}")
        await fill(tab, "Key of groq", "canary-three", dialog)
        monkeypatch.setenv("GROQ_BASE_URL", provider.base_url)
        await click(tab, "Store key", dialog)
        await tab.wait_for(f"!{dialog} && {SAID} === 'The key of groq is stored.'")
        await tab.evaluate("history.back()")
        await tab.wait_for(f"{refused} === 'The model groq:openai/gpt-oss-120b has a key now. Send the message again.'")


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
        asked = await tab.wait_for(f"{DECISION}?.textContent")
        assert PAYLOADS[0] in asked
        assert "\u202e" not in asked
        assert "\u200b" not in asked
        assert "\x1b" not in asked
        await click(tab, "Allow once", DECISION)
        await tab.wait_for(f"{STOPPED} && document.querySelectorAll('.answer').length === 2")
        assert await tab.evaluate("document.querySelector('#log :is(img, script, svg, iframe)')") is None
        assert await tab.evaluate("document.querySelector('#log a[href^=javascript]')") is None
        assert await tab.evaluate("window.hit ?? null") is None
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_another_attempt_is_shown_with_the_reason_and_the_time_until_then(
    make_studio: StudioMaker, tab: Tab
) -> None:
    busy = ModelError("dead:x answered with HTTP 429", code="provider.rate_limited", retryable=True, retry_after=30)
    refused = ModelError("dead:x does not know you\u202e", code="provider.auth")
    spawn = [call("spawn_subagent", {"task": "Find it", "name": "searcher"}), call("wait_subagents")]
    dead = ScriptedModel([refused, *[busy] * 3, spawn, busy], name="dead:x")
    model = RetryingModel(dead, [ScriptedModel(["Here."], name="acme:large")])
    async with make_studio(model, tools=session_tools(), llm_first_feedback_seconds=0.1) as studio:
        await enter(tab, studio)
        await send_message(tab, "hello")
        log = await tab.wait_for(f"{SHOWN}.includes('Here.') && {SHOWN}")
        assert "The provider did not accept the key; asked acme:large instead.\ndead:x does not know you⟨U+202E⟩" in log
        session_id = (await tab.evaluate("location.hash")).removeprefix("#/s/")
        await send_message(tab, "hello")
        async with studio.events(session_id) as frames:
            async for frame in frames:
                if frame.data and frame.data["data"].get("waiting"):
                    break
        counted = "The provider allows no more requests for now; asks again in "
        await tab.wait_for(f"{SHOWN}.includes({counted!r})")
        status = await tab.wait_for(f"/^Trying again in \\d+/.test({STATUS}) && {STATUS}")
        await tab.wait_for(f"{STATUS} !== {status!r} && /^Trying again in \\d+/.test({STATUS})")
        await click(tab, "Stop")
        await tab.wait_for(f"{SHOWN}.includes('requests for now.\\n')")
        await fill(tab, "Number of answers", "2")
        await send_message(tab, "a page")
        option = text_of(".card.option summary")
        await tab.wait_for(f"/^Option 1 · dead:x · Trying again in [12]?\\d s$/.test({option})")
        await click(tab, "Stop")
        await tab.wait_for(STOPPED)
        await fill(tab, "Number of answers", "1")
        await send_message(tab, "Where is it?")
        agent = text_of("#log [data-agent] > .note")
        await tab.wait_for(f"/^Trying again in [12]?\\d s$/.test({agent})")


# --- files ------------------------------------------------------------------------------------------------------------

ATTACHED = f"{text_of('#attached')}.replaceAll('×', '').replace(/\\s+/g, ' ').trim()"
ATTACHMENT_ERROR = text_of("#attachment-error")


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
        log = await tab.wait_for(f"{STOPPED} && {SHOWN}.includes('seen') && {SHOWN}")
        for file in (PNG, PDF, TEXT):
            assert f"Attached: {file.name} ({file.size} bytes)" in log
        images = "[...document.querySelectorAll('#log a[href^=\"blob:\"] > img')]"
        loaded = await tab.wait_for(
            f"{images}[0]?.naturalWidth && {images}.map((one) => [one.alt, one.offsetHeight > 60])"
        )
        assert loaded == [[PNG.name, True]]
        assert await tab.evaluate("document.getElementById('attached')") is None
        await send_message(tab, "And now?")
        await tab.wait_for(f"{STOPPED} && {SHOWN}.includes('and now')")
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
        "o\u202egpj.exe": (
            "['x']",
            "o⟨U+202E⟩gpj.exe cannot be attached: its name has control characters or marks that reverse text. "
            "Rename the file.",
        ),
    }
    async with make_studio(ScriptedModel(["so"])) as studio:
        await enter(tab, studio)
        for name, (content, sentence) in refusals.items():
            await add_files(tab, "dropped", (name, content), ("a.txt", "['a']"))
            shown = f"{ATTACHMENT_ERROR}.startsWith({sentence.split()[0]!r}) && {ATTACHMENT_ERROR}"
            assert await tab.wait_for(shown) == sentence
        await tab.wait_for("document.querySelectorAll('#attached li').length === 4")
        await add_files(tab, "dropped", *[(f"{n}.txt", "['a']") for n in range(MAX_ATTACHMENTS - 3)])
        sentence = f"{MAX_ATTACHMENTS - 4}.txt is one too many: a message may have {MAX_ATTACHMENTS} files."
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
        await tab.wait_for(f"{TITLE} === 'New session' && {INPUT} === 'Look'")
        assert await tab.evaluate("document.querySelectorAll('#attached li').length") == 2
        assert await tab.evaluate("document.activeElement.id") == "input"
        assert (await studio.client.get("/api/sessions")).json()["sessions"] == []  # none without a message


@pytest.mark.ci_lane
async def test_a_user_finds_renames_pins_and_deletes_sessions(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(ScriptedModel(["We meet in 会议室 three."])) as studio:
        other = await studio.session(name="Another")
        await enter(tab, studio, f"#/s/{await studio.session(name=None)}")
        await send_message(tab, "Where do we <b>meet</b>?")
        await tab.wait_for(f"{TITLE} == 'Where do we <b>meet</b>?'")
        rows = "[...document.querySelectorAll('#sessions .name')].map((row) => row.textContent).sort().join('|')"
        await tab.wait_for(f"{rows} == 'Another|Where do we <b>meet</b>?'")
        await fill(tab, "Find in sessions", "会议")
        await tab.wait_for("document.querySelector('.match mark')?.textContent == '会议'")
        assert await tab.evaluate(rows) == "Where do we <b>meet</b>?"
        await tab.evaluate("document.querySelector('.match').click()")
        await tab.wait_for("location.hash.includes('/m/')")
        await fill(tab, "Find in sessions", "")
        await click(tab, "Another")
        await tab.wait_for(f"{TITLE} == 'Another'")
        await choose(tab, "Rename")
        await fill(tab, "Name", "of another session", "document.querySelector('dialog')")
        await tab.evaluate("history.back()")
        await tab.wait_for(f"{TITLE} != 'Another' && !document.querySelector('dialog')")
        await tab.evaluate("history.forward()")
        await tab.wait_for(f"{TITLE} == 'Another'")
        await choose(tab, "Rename")
        await fill(tab, "Name", "o\u202egpj", "document.querySelector('dialog')")
        await click(tab, "Rename session", "document.querySelector('dialog')")
        refused = await tab.wait_for(text_of("dialog[open] [role=alert]"))
        assert refused == "A name must be one line without control characters. You typed: o⟨U+202E⟩gpj"
        assert await tab.evaluate("document.querySelector('dialog input').value") == "o\u202egpj"
        await fill(tab, "Name", " Mine ", "document.querySelector('dialog')")
        await tab.evaluate("document.querySelector('dialog input').focus()")
        await tab.press("Enter")
        await tab.wait_for(f"{TITLE} == 'Mine'")
        menu_has_focus = "!document.querySelector('dialog') && document.activeElement.ariaLabel == 'Session menu'"
        await tab.wait_for(menu_has_focus)
        await choose(tab, "Delete")
        await tab.wait_for("document.querySelector('dialog[open]') && true")
        await tab.press("Escape")
        await tab.wait_for(menu_has_focus)
        await choose(tab, "Pin")
        await tab.wait_for(f"{rows} == 'Where do we <b>meet</b>?|★ Mine'")
        assert await tab.evaluate("document.querySelector('#sessions h2').innerText") == "Pinned"
        assert (await studio.client.get(f"/api/sessions/{other}")).json()["name"] == "Mine"
        await choose(tab, "Archive")
        await tab.wait_for(f"{rows} == 'Where do we <b>meet</b>?'")
        assert await tab.wait_for(text_of("#message")) == "Archived. It is listed under Archived."
        assert await tab.evaluate(text_of(".session-header .archived")) == "archived"
        await tab.evaluate("document.getElementById('archived').click()")
        await tab.wait_for(f"{rows} == '★ Mine'")
        assert [error for error in tab.errors if "422" not in error] == []  # of the refused name
        await choose(tab, "Delete")
        await click(tab, "Delete session", "document.querySelector('dialog')")
        await tab.wait_for(f"{TITLE} == 'New session' && {rows} == ''")  # no other one is listed
        await tab.evaluate("document.getElementById('archived').click()")
        await tab.wait_for(f"{rows} == 'Where do we <b>meet</b>?'")
        assert (await studio.client.get(f"/api/sessions/{other}")).status_code == 404
        assert [error for error in tab.errors if "422" not in error and "404" not in error] == []  # of late reads


async def choose(tab: Tab, item: str) -> None:
    """Choose an item of the menu of the session."""
    await click(tab, "Session menu")
    await click(tab, item, "document.querySelector('[role=menu]')")


LOST_FORKS = """{
    const request = window.fetch;
    window.fetch = async (url, options) => {
        const response = await request(url, options);
        if (url.endsWith("/fork")) throw new TypeError("the connection is lost");
        return response;
    };
}"""


async def test_a_user_rewinds_undoes_that_edits_and_forks(make_studio: StudioMaker, tab: Tab) -> None:
    edit = call("file_write", {"path": "a.txt", "content": "two"})
    model = ScriptedModel(["One.", ["Writing.", edit], "Two.", "Three."])
    async with make_studio(model, tools=builtin_tools(), permission_mode="auto") as studio:
        session_id = await studio.session(name="Steps")
        await enter(tab, studio)
        ends = "document.querySelectorAll('#log .message-actions')"
        await tab.wait_for(f"{TITLE} === 'Steps'")
        await send_message(tab, "first")
        await tab.wait_for(f"{STOPPED} && {ends}.length == 1")
        await send_message(tab, "second")
        await tab.wait_for(f"{STOPPED} && {ends}.length == 2")
        shown = "[...document.querySelectorAll('#log :is(.text, .answer)')].map((e) => e.innerText.trim()).join('|')"
        assert await tab.evaluate(shown) == "first|One.|second|Writing.|Two."
        rewinds = f"[...{ends}].map((end) => Boolean({button('Rewind to here', 'end')}))"
        assert await tab.evaluate(rewinds) == [True, False]  # the conversation ends with the last answer anyhow
        await click(tab, "Rewind to here", f"{ends}[0]")
        await tab.wait_for(f"{shown} == 'first|One.' && {rewinds} == 'false'")
        await tab.wait_for(f"{text_of('#log .rewound')} === 'a.txt was removed.'")
        assert not (studio.workspace / "a.txt").exists()
        await click(tab, "Undo")
        await tab.wait_for(f"{shown} == 'first|One.|second|Writing.|Two.'")
        assert (studio.workspace / "a.txt").read_text() == "two"
        assert not await tab.evaluate("document.getElementById('log').innerText.includes('rewound')")  # nothing to undo
        await click(tab, "Edit", "document.querySelectorAll('#log .user')[1]")
        await tab.wait_for(f"{INPUT} == 'second'")
        assert await tab.evaluate(shown) == "first|One.|second|Writing.|Two."  # taken back when it is sent
        await write(tab, "")
        await send_message(tab, "third")
        await tab.wait_for(f"{shown} == 'first|One.|third|Three.' && {STOPPED}")
        (studio.workspace / "a.txt").write_text("three")
        await click(tab, "Undo")
        await tab.wait_for(f"{shown} == 'first|One.|second|Writing.|Two.'")
        changed = await tab.wait_for(f"{text_of('#message')}")
        assert changed == "a.txt: It was changed outside this conversation since; it was not overwritten."
        await click(tab, "Dismiss the message")
        assert await tab.wait_for(f"document.activeElement.id === 'input' && {text_of('#message')} === ''")
        assert "The rewind was undone" in await tab.evaluate("document.getElementById('log').innerText")
        await click(tab, "Bring it back")
        await tab.wait_for(f"{shown} == 'first|One.|third|Three.'")
        await tab.reload()
        await tab.wait_for(f"{shown} == 'first|One.|third|Three.'")
        listed = (await studio.client.get(f"/api/sessions/{session_id}/messages")).json()["messages"]
        assert [message["content"] for message in listed] == ["first", "One.", "third", "Three."]
        await click(tab, "Fork here", f"{ends}[0]")
        await tab.wait_for(f"{TITLE} == 'Steps (fork)'")
        await tab.wait_for(f"{shown} == 'first|One.'")
        await tab.evaluate(LOST_FORKS)
        await click(tab, "Fork here", f"{ends}[0]")
        lost = "The answer was lost. If the fork was made, the list of sessions has it."
        await tab.wait_for(f"{text_of('#message')} === {lost!r}")
        assert "Steps (fork) (fork)" in await tab.evaluate(text_of("nav .list"))
