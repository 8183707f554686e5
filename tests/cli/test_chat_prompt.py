"""The prompt of `agx chat` at a terminal: pasted text, lines, history, completion, early keys."""

from __future__ import annotations

import json
import os
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
    quit_chat(screen)
    assert messages(agx) == ["say folder/two words.txt"]
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
    screen.wait_for("\n**plain**\n")
    quit_chat(screen)


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
        ("/usage", "demo"),
        ("/export talk.md", "talk.md"),
        ("/export talk.md", "File exists"),
        ("/retry", "exit code 3"),
    ):
        screen.wait_for("› ")
        screen.type(f"{keys}\r")
        screen.wait_for(shown)
    quit_chat(screen)
    session = json.loads(agx("sessions", "show", "last", "--json").stdout)
    (message,) = [one for one in session["messages"] if one["role"] == "user"]
    assert session["name"] == "Fine name"
    assert message["content"].startswith("say read @notes.txt\n\n[output of `echo out; exit 3`")
    assert [one["name"] for one in message["attachments"]] == ["notes.txt"]
    assert (agx.folder / "talk.md").read_text().startswith("# Fine name")


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


def test_compact_replaces_earlier_messages_by_a_summary(agx: Any, terminal: Callable[..., Any]) -> None:
    (agx.folder / "long.txt").write_text("words and words\n" * 1_000)
    screen = terminal("chat")
    for keys, shown in (
        ("/compact", "there is nothing to compact"),
        ("say one @long.txt", "one @long.txt\n"),
        ("/compact", "2 earlier messages are now a summary\n2 earlier messages became a summary: about "),
        ("/compact", "There is nothing to compact: the conversation has about "),
    ):
        screen.wait_for("› ")
        screen.type(f"{keys}\r")
        screen.wait_for(shown)
    quit_chat(screen)
    assert messages(agx) == ["say one @long.txt", "/compact", "/compact"]


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
        ("say @.", "\n@.\n"),
    ):
        screen.wait_for("› ")
        screen.type(f"{keys}\r")
        screen.wait_for(shown)
    assert agx("sessions", "delete", "--yes", "last").returncode == 0
    screen.wait_for("› ")
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


def test_the_models_of_a_chat_at_an_address_are_those_of_its_server_first(
    agx: Any, terminal: Callable[..., Any], provider: Any
) -> None:
    provider.events('{"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}', "[DONE]")
    screen = terminal("chat", "-m", "openai-chat:tiny", "--base-url", provider.base_url)
    for keys, shown in (
        ("/model", f"* openai-chat:tiny@{provider.base_url}\n  openai-chat:big@{provider.base_url}\n  demo\n"),
        (f"/model openai-chat:big@{provider.base_url}", f"model: openai-chat:big@{provider.base_url}\n"),
        ("hello", "hi\n"),
    ):
        screen.wait_for("› ")
        screen.type(f"{keys}\r")
        screen.wait_for(shown)
    quit_chat(screen)
    assert json.loads(provider.requests[0])["model"] == "big"
