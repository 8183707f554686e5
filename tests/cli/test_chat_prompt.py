"""The prompt of `agx chat` at a terminal: pasted text, lines, history, completion, early keys."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.screen import Screen


def messages(agx: Any) -> list[str]:
    """Return the user messages of the last session."""
    session = json.loads(agx("sessions", "show", "last", "--json").stdout)
    return [message["content"] for message in session["messages"] if message["role"] == "user"]


def quit_chat(screen: Any) -> None:
    screen.wait_for("› ")
    screen.type("\x04")
    assert screen.exit_code() == 0


def test_pasted_lines_are_one_message(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type("\x1b[200~say one\nsay two\n\x1b[201~ end\r")
    screen.wait_for("one\nsay two\nend\n")
    quit_chat(screen)
    assert messages(agx) == ["say one\nsay two\n end"]


def test_pasted_lines_that_begin_like_a_command_of_the_user_run_nothing(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type("\x1b[200~![logo] say done\ntouch ran\x1b[201~\r")
    quit_chat(screen)
    assert messages(agx) == ["![logo] say done\ntouch ran"]
    assert not (agx.folder / "ran").exists()


@pytest.mark.parametrize(
    "pasted", ["\x1b[31mred\x1b[0m", "\x1b[38;5;196mred", "\x1b[<0;5;5Mred\x1b[5;7R", "\x1b[M%%%red"]
)
@pytest.mark.cases(quick=1)
def test_colours_and_mouse_events_pasted_as_keys_are_dropped(
    agx: Any, terminal: Callable[..., Any], pasted: str
) -> None:
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type(f"say {pasted} wine\r")
    screen.wait_for("red wine\n")
    assert "Exception" not in screen.screen
    quit_chat(screen)
    assert messages(agx) == ["say red wine"]


@pytest.mark.ci_lane
def test_alt_enter_and_a_backslash_at_the_end_begin_a_line(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type("say one\x1b\rtwo\\\rthree\\\\\r")
    quit_chat(screen)
    assert messages(agx) == ["say one\ntwo\nthree\\\\"]


@pytest.mark.ci_lane
def test_keys_typed_during_an_answer_wait_for_the_next_prompt(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type("count to 400\r")
    screen.wait_for("1 2 3 4")
    screen.type("say la\x7f\x7flater\r\x1b[200~say pa\nsted\x1b[201~")
    screen.wait_for(" 400\n")
    assert "say la" not in screen.screen.partition(" 400\n")[0]
    screen.wait_for("later\n")
    screen.wait_for("sted")
    screen.type("\r")
    quit_chat(screen)
    assert messages(agx) == ["count to 400", "say later", "say pa\nsted"]


@pytest.mark.ci_lane
def test_a_message_of_an_earlier_chat_can_be_called_up(agx: Any, terminal: Callable[..., Any]) -> None:
    history = Path(agx.environment["AGX_HOME"]) / "chat_history"
    history.parent.mkdir()
    history.write_text('say first\n"say two\\nlines"\n')
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type("\x1b[A\r")
    screen.wait_for("lines\n")
    screen.wait_for("› ")
    screen.type("say last\r")
    quit_chat(screen)
    assert messages(agx) == ["say two\nlines", "say last"]
    assert history.read_text() == 'say first\n"say two\\nlines"\nsay last\n'
    assert history.stat().st_mode & 0o777 == 0o600


def test_tab_completes_commands_models_and_paths(agx: Any, terminal: Callable[..., Any]) -> None:
    (agx.folder / "folder").mkdir()
    (agx.folder / "folder" / "two words.txt").write_text("words")
    (agx.folder / "folder" / "od\x1bd.txt").write_text("words")
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type("/att\t fol\tt\t\r")
    screen.wait_for("attached to your next message: two words.txt (text/plain, 5 bytes)")
    screen.wait_for("› ")
    screen.type("/model de\t\r")
    screen.wait_for("model: demo\n")
    screen.wait_for("› ")
    screen.type("/rew\t u\t\r")
    screen.wait_for("there is no message to take back")
    screen.wait_for("› ")
    screen.type("/mo\t\t")
    screen.wait_for("/mode  ")
    screen.wait_for("/model ")
    screen.wait_for("› /mode")
    screen.type("\x15say folder/tw\t\r")
    screen.wait_for("folder/two words.txt\n")
    screen.wait_for("› ")
    screen.type("say @folder/tw\t\r")
    screen.wait_for("attached: two words.txt (text/plain, 5 bytes)")
    screen.wait_for("› ")
    screen.type('say @"fol\ttw\t\r')
    quit_chat(screen)
    mention = 'say @"folder/two words.txt"'
    assert messages(agx) == ["say folder/two words.txt", mention, mention]
    assert "od\x1bd" not in screen.raw


def test_an_answer_is_rendered_as_markdown_and_its_control_characters_are_not_sent(
    agx: Any, terminal: Callable[..., Any], provider: Any
) -> None:
    answer = "A **bold**\x1b]0;title\x07 word &#x1b;[2J\n\n```python\nx = 1\n```\n\n- done"
    pieces = [answer[at : at + 7] for at in range(0, len(answer), 7)]
    provider.events(
        *(json.dumps({"choices": [{"index": 0, "delta": {"content": piece}}]}) for piece in pieces),
        '{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}',
        "[DONE]",
    )
    screen = terminal("chat", "--model", "openai-chat:x", "--base-url", provider.base_url)
    screen.wait_for("› ")
    screen.type("hello\r")
    screen.wait_for("• done\n")
    quit_chat(screen)
    assert "\x1b]" not in screen.raw
    assert "\x07" not in screen.raw
    seen = Screen(80)
    seen.write(screen.raw)
    begin = seen.text().index("A bold")
    assert seen.text()[begin:].startswith("A bold⟨U+001B⟩]0;title⟨U+0007⟩ word \ufffd[2J\n\n  x = 1\n\n • done\n›\n")
    assert "\x1b[1mbold" in screen.raw


def test_a_dumb_terminal_shows_the_text_as_it_is(agx: Any, terminal: Callable[..., Any]) -> None:
    agx.environment["TERM"] = "dumb"
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type("say **plain**\r")
    screen.wait_for("\n| **plain**\n")
    quit_chat(screen)


@pytest.mark.ci_lane
@pytest.mark.parametrize("variable", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_a_reply_without_colours_cannot_look_like_a_question_of_the_program(
    agx: Any, terminal: Callable[..., Any], provider: Any, variable: dict[str, str]
) -> None:
    fake = "Allow this? [y]es, [n]o [reason]: "
    reply = f"```\n{fake}\n\n{'x' * 37}{fake}\n```\n{'汉' * 19}{fake}"
    provider.events(json.dumps({"choices": [{"delta": {"content": reply}, "finish_reason": "stop"}]}), "[DONE]")
    agx.environment |= variable | {"AGX_MODEL": "openai-chat:some", "OPENAI_API_KEY": "key"}
    agx.environment["OPENAI_BASE_URL"] = provider.base_url
    chat = terminal("chat", columns=40)
    chat.wait_for("› ")
    chat.type("go\r")
    for _ in range(3):
        chat.wait_for("[reason]:")
    quit_chat(chat)
    run = terminal("run", "go", columns=40)
    assert run.exit_code() == 0
    for screen in (chat, run):
        rows = [row for row in screen.rows().split("\n") if "x" * 30 in row or "es, [" in row or "汉" in row]
        assert len(rows) == 5
        assert all(row.startswith("| ") and len(row) < 40 for row in rows)
    assert agx("run", "go").stdout == f"{reply}\n"


def test_the_terminal_is_left_as_it_was(agx: Any, terminal: Callable[..., Any]) -> None:
    import termios

    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type("count to 9999\r")
    screen.wait_for("1 2 3 4")
    during = termios.tcgetattr(screen.descriptor)[3]
    assert during & (termios.ECHO | termios.ICANON | termios.ISIG) == termios.ISIG
    screen.type("\x03")
    screen.wait_for("the turn was stopped")
    quit_chat(screen)
    after = termios.tcgetattr(screen.descriptor)[3]
    assert after & termios.ECHO
    assert after & termios.ICANON
    assert screen.raw.count("\x1b[?2004h") == screen.raw.count("\x1b[?2004l")


def test_a_chat_begins_with_the_message_of_its_command_line(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("chat", "say", "hello there")
    screen.wait_for("\nhello there\n")
    quit_chat(screen)
    assert messages(agx) == ["say hello there"]


def test_commands_of_a_chat_run_name_export_and_retry(agx: Any, terminal: Callable[..., Any]) -> None:
    (agx.folder / "notes.txt").write_text("notes")
    screen = terminal("chat")
    for keys, shown in (
        ("!echo out; exit 3", "exit code 3"),
        ("say read @notes.txt", "notes.txt\n"),
        ("/model", "* demo"),
        ("/rename Fine name", "name: Fine name"),
        ("/usage", "0.0000\ndemo is a script and costs nothing\n"),
        ("/export talk.md", "talk.md"),
        ("/export talk.md", "File exists"),
        ("/retry", "exit code 3"),
    ):
        screen.wait_for("› ")
        screen.type(f"{keys}\r")
        screen.wait_for(shown)
    quit_chat(screen)
    assert " tokens · $0 · context " in screen.screen
    session = json.loads(agx("sessions", "show", "last", "--json").stdout)
    (message,) = [one for one in session["messages"] if one["role"] == "user"]
    assert session["name"] == "Fine name"
    assert message["content"].startswith("say read @notes.txt\n\n[output of `echo out; exit 3`")
    assert [one["name"] for one in message["attachments"]] == ["notes.txt"]
    assert (agx.folder / "talk.md").read_text().startswith("# Fine name")


def test_a_command_of_the_user_shows_its_output_as_it_comes_and_keeps_its_ends_for_the_model(
    agx: Any, terminal: Callable[..., Any]
) -> None:
    os.mkfifo(agx.folder / "gate")
    screen = terminal("chat")
    screen.wait_for("› ")
    screen.type("!seq 20000; cat gate\r")
    screen.wait_for("\n20000\n")
    (agx.folder / "gate").write_text("open")
    screen.wait_for("open\n")
    screen.wait_for("› ")
    screen.type("hello\r")
    quit_chat(screen)
    (message,) = messages(agx)
    assert "\n1\n2\n3\n" in message
    assert " bytes left out …]\n" in message
    assert "\n20000\nopen\nexit code 0\n" in message
    assert len(message) < 40_000


def test_mentioned_files_are_named_before_they_are_sent_and_a_secret_one_asks(
    agx: Any, terminal: Callable[..., Any], tmp_path: Path
) -> None:
    (agx.folder / "main.py").write_text("print()\n")
    (agx.folder / ".env").write_text("API_KEY=1\n")
    (tmp_path / "outside.txt").write_text("outside")
    (agx.folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    screen = terminal("chat")
    for keys, shown in (
        (
            "say @main.py @./main.py @ann",
            "attached: main.py (text/plain, 8 bytes)\n@ann is no file here and stays text; /attach FILE",
        ),
        ("say @nosuch.txt", "not sent: @nosuch.txt: there is no such file"),
        ("\x15say @link.txt", "is outside the workspace"),
        (f"\x15say @../{agx.folder.name}/main.py", "contains '..'"),
        ("\x15say @.env", "Attach it? [y/N]: "),
    ):
        screen.wait_for("› ")
        screen.type(f"{keys}\r")
        screen.wait_for(shown)
    screen.type("n\r")
    screen.wait_for("not sent: .env is not attached")
    screen.wait_for("› say @.env")
    screen.type("\r")
    screen.wait_for("Attach it? [y/N]: ")
    screen.type("y\r")
    screen.wait_for("attached: .env (text/plain, 10 bytes)")
    screen.wait_for("› ")
    screen.type("say ask @ann again\r")
    quit_chat(screen)
    assert screen.screen.count("stays text") == 1
    session = json.loads(agx("sessions", "show", "last", "--json").stdout)
    sent = [one for one in session["messages"] if one["role"] == "user"]
    files = [[file["name"] for file in one.get("attachments", ())] for one in sent]
    assert files == [["main.py"], [".env"], []]


@pytest.mark.ci_lane
def test_retry_sends_the_attached_files_again(agx: Any, terminal: Callable[..., Any]) -> None:
    (agx.folder / "small.txt").write_text("small")
    (agx.folder / "large.txt").write_text("large " * 10_000)  # its content is not in the commit
    screen = terminal("chat")
    for keys, shown in (
        ("/attach small.txt large.txt", "attached to your next message"),
        ("say one", "one\n"),
        ("/retry", "attached: small.txt, large.txt\none\n"),
        ("say two", "two\n"),
    ):
        screen.wait_for("› ")
        screen.type(f"{keys}\r")
        screen.wait_for(shown)
    quit_chat(screen)
    session = json.loads(agx("sessions", "show", "last", "--json").stdout)
    sent = [one for one in session["messages"] if one["role"] == "user"]
    assert [[file["size"] for file in one.get("attachments", ())] for one in sent] == [[5, 60_000], []]


@pytest.mark.ci_lane
def test_compact_replaces_earlier_messages_by_a_summary(agx: Any, terminal: Callable[..., Any]) -> None:
    (agx.folder / "long.txt").write_text("words and words\n" * 1_000)
    screen = terminal("chat")
    for keys, shown in (
        ("/compact", "there is nothing to compact"),
        ("say one @long.txt", "one @long.txt\n"),
        ("/compact", "2 earlier messages are now a summary\nThe conversation now has about "),
        ("/compact", "There is nothing to compact: the conversation has about "),
    ):
        screen.wait_for("› ")
        screen.type(f"{keys}\r")
        screen.wait_for(shown)
    quit_chat(screen)
    assert messages(agx) == ["say one @long.txt", "/compact", "/compact"]


@pytest.mark.ci_lane
def test_retry_and_rewind_pass_over_a_compaction(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("chat")
    for keys, shown in (
        ("say hello", "\nhello\n"),
        ("/compact", "There is nothing to compact: the conversation has about "),
        ("/retry", "› say hello\nhello\n"),
        ("/compact", "There is nothing to compact: the conversation has about "),
        ("/rewind", "taken back: say hello\n"),
    ):
        screen.wait_for("› ")
        screen.type(f"{keys}\r")
        screen.wait_for(shown)
    quit_chat(screen)
    assert messages(agx) == []


@pytest.mark.ci_lane
def test_a_misspelt_command_names_the_one_with_the_same_letters(agx: Any, terminal: Callable[..., Any]) -> None:
    os.mkfifo(agx.folder / "fifo")
    screen = terminal("chat")
    for keys, shown in (
        ("/modle", "unknown command /modle; did you mean /model?"),
        ("/usr/bin/x fails", "unknown command /usr/bin/x; /help lists the commands, and //usr/bin/x … sends a message"),
        ("//usr/bin/x fails", "your words “/usr/bin/x fails” are none of the sentences"),
        ("/usr/bin/x fails\x1b\ragain", "your words “/usr/bin/x fails\nagain” are none of the sentences"),
        ("/mode autoo", "did you mean auto?"),
        ("say @fifo", "is not a file"),
        ("\x15say @.", "\n@.\n"),  # Ctrl-U: the prompt begins with what was not sent
    ):
        screen.wait_for("› ")
        screen.type(f"{keys}\r")
        screen.wait_for(shown)
    screen.wait_for("› ")  # the turn has ended
    assert agx("sessions", "delete", "--yes", "last").returncode == 0
    screen.type("say on\r")
    screen.wait_for("it was deleted; /new starts another, /sessions lists the others")
    quit_chat(screen)


@pytest.mark.ci_lane
def test_a_status_line_stands_above_the_prompt_while_a_message_is_typed(
    agx: Any, terminal: Callable[..., Any], provider: Any
) -> None:
    usage = '"usage": {"prompt_tokens": 12000, "completion_tokens": 345}'
    provider.events(f'{{"choices": [{{"delta": {{"content": "hi"}}, "finish_reason": "stop"}}], {usage}}}', "[DONE]")
    agx.environment |= {"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": provider.base_url}
    chat = terminal("chat", "-m", "openai-chat:gpt-4.1-mini", "--permission-mode", "plan", columns=100)
    chat.wait_for("\nopenai-chat:gpt-4.1-mini · mode plan\r\n› ")
    chat.type("hello\r")
    chat.wait_for("hi\nopenai-chat:gpt-4.1-mini · mode plan · 12.3k tokens · $0.0054 · context 1 % of 1.05M\r\n› ")
    chat.type("/mode default\r")
    chat.wait_for("openai-chat:gpt-4.1-mini · mode default · 12.3k tokens")
    chat.wait_for("› ")
    chat.type("\x04")
    assert chat.exit_code() == 0
    screen = Screen(100)
    screen.write(chat.raw)
    assert "tokens" not in screen.text()  # nothing of it stays
    narrow = terminal("chat", "-c", columns=40)
    narrow.wait_for("openai-chat:gpt-4.1-mini · mode default\r\n› ")
    tiny = terminal("chat", "-c", columns=20)
    tiny.wait_for("openai-chat:gpt-4.…\r\n› ")
    piped = agx("chat", "-c", stdin="hello\n")
    assert (piped.returncode, piped.stdout, "mode default" in piped.stderr) == (0, "hi\n", False)


@pytest.mark.ci_lane
def test_a_chat_starts_a_session_with_a_team_whose_name_tab_completes(agx: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal("chat")
    for keys, shown in (
        ("/team", "teams: review, triage, writer-critic\n"),
        ("/team nope", "unknown team 'nope'"),
        ("/team wri\t", "your next message starts a session with the team writer-critic\ndemo · team writer-critic · "),
        ("Write a line about rain", "› "),
    ):
        screen.wait_for("› ")
        screen.type(f"{keys}\r")
        screen.wait_for(shown)
    screen.type("\x04")
    assert screen.exit_code() == 0
    assert json.loads(agx("sessions", "show", "last", "--json").stdout)["team"] == "writer-critic"


@pytest.mark.ci_lane
def test_the_models_of_a_chat_at_an_address_are_those_of_its_server_first(
    agx: Any, terminal: Callable[..., Any], provider: Any
) -> None:
    provider.events('{"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}', "[DONE]")
    screen = terminal("chat", "-m", "openai-chat:tiny", "--base-url", provider.base_url)
    for keys, shown in (
        ("/model", f"* openai-chat:tiny@{provider.base_url}\n  openai-chat:big@{provider.base_url}\n  demo\n"),
        (f"/model openai-chat:big@{provider.base_url}", f"model: openai-chat:big@{provider.base_url}\n"),
        ("/model tniy", f"{provider.base_url} has no model 'tniy': it lists tiny, big; did you mean 'tiny'?\n"),
        ("hello", "hi\n"),
    ):
        screen.wait_for("› ")
        screen.type(f"{keys}\r")
        screen.wait_for(shown)
    assert json.loads(provider.requests[0])["model"] == "big"
    provider.listing = b"no list"
    screen.wait_for("› ")
    screen.type("/model other\r")
    screen.wait_for(f"the name could not be checked: {provider.base_url}/models is no list of models\n")
    screen.wait_for(f"model: openai-chat:other@{provider.base_url}\n")
    quit_chat(screen)


LOGGING = """
import signal, threading
from agenticx.logs import get_logger
def warn():
    get_logger("agenticx.test").warning("line of the log")
signal.signal(signal.SIGUSR1, lambda *_: threading.Thread(target=warn).start())
"""


@pytest.mark.ci_lane
def test_lines_of_the_log_appear_above_the_prompt(agx: Any, terminal: Callable[..., Any]) -> None:
    def log() -> None:
        for _ in range(2):
            chat.process.send_signal(signal.SIGUSR1)
            chat.wait_for("WARNING agenticx.test line of the log\n")

    chat = terminal("chat", prepare=LOGGING)
    chat.wait_for("› ")
    chat.type("a draft")
    chat.wait_for_rows("› a draft")
    log()
    chat.wait_for_rows("line of the log\ndemo · mode default\n› a draft")
    assert chat.rows().count("a draft") == 1
    chat.type("\x15run touch made\r")
    chat.wait_for("[e]dit: ")
    log()
    chat.wait_for_rows(
        "line of the log\nAllow this? [y]es, [s]ession, [a]lways, e[x]actly this, [n]o [reason], [e]dit:"
    )
    chat.type("e\n")
    chat.wait_for('"command": "touch made"')
    log()
    chat.wait_for_rows('line of the log\n  {\n    "command": "touch made"\n  }')
    assert chat.rows().count('"command": "touch made"') == 1
    chat.type("\x03")
    chat.wait_for("(Enter: no): ")
    chat.type("n\n")
    chat.wait_for("denied by you")
    chat.wait_for("› ")
    chat.type("\x04")
    assert chat.exit_code() == 0


EDITOR = r"""#!/bin/sh
printf '\n[the editor]\n'
kill -USR1 $PPID
head -c 1 > /dev/null
printf '[its end]\n'
"""


@pytest.mark.ci_lane
def test_lines_of_the_log_wait_for_the_end_of_an_editor(agx: Any, terminal: Callable[..., Any]) -> None:
    editor = agx.folder.parent / "editor"
    editor.write_text(EDITOR)
    editor.chmod(0o755)
    agx.environment["EDITOR"] = str(editor)
    run = terminal("run", "run touch made", prepare=LOGGING)
    run.wait_for("[e]dit: ")
    run.process.send_signal(signal.SIGUSR1)
    run.wait_for("WARNING agenticx.test line of the log\n")
    run.wait_for("[e]dit: ")
    run.type("e\n")
    run.wait_for("[the editor]\n")
    run.type("x\n")
    run.wait_for("[its end]\n")
    run.wait_for("WARNING agenticx.test line of the log\n")
    run.wait_for_rows("(Enter: no):")
    run.type("n\n")
    run.wait_for("denied by you")
