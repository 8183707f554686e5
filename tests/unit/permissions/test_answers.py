"""Answers of the user: the rules that they store, edited arguments, and questions that a change decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agenticx import Agent, Session
from agenticx.permissions import Rule, parse_rule
from agenticx.permissions.rule_stores import FileRules
from agenticx.runtime import AgentRuntime, AsyncConfirmGate, AutoApproveConfirmGate, ConfirmAnswer, TurnContext
from agenticx.testing import ScriptedModel, call
from agenticx.tools import Assessment, tool
from agenticx.tools.builtin import bash_exec, file_write

pytestmark = [pytest.mark.anyio, pytest.mark.promise("E5")]

Answer = Callable[[Any], ConfirmAnswer | None]


def remember(when: str, *rules: Rule) -> ConfirmAnswer:
    return ConfirmAnswer(approved=True, remember=when, rules=rules)  # type: ignore[arg-type]


def run(command: str) -> Any:
    return call("bash_exec", {"command": command})


def write(path: str, content: str = "x") -> Any:
    return call("file_write", {"path": path, "content": content})


async def play(
    session: Session,
    *replies: Any,
    answer: Answer,
    home: Path | None = None,
    tools: Any = (bash_exec, file_write),
    errors: list[str] | None = None,
) -> tuple[list[str], list[tuple[str, str]]]:
    """Run a turn; return what was asked about, and the outcomes and results of the calls; `errors` gets its errors."""
    gate, asked, results = AsyncConfirmGate(), list[str](), list[tuple[str, str]]()
    context = TurnContext(rules=None if home is None else FileRules(home))
    events = AgentRuntime(ScriptedModel([*replies, "Done."]), gate, tools=list(tools))
    async for event in events.run_turn("Go.", session, context=context):
        if event.type == "confirm_required":
            details = event.data["context"]
            asked.append(details["arguments"].get("command") or details["arguments"].get("path") or details["tool"])
            given = answer(details)
            if given is not None:
                gate.decide(event.data["id"], given)
        elif event.type == "tool_result":
            results.append((event.data["outcome"], event.data["result"]))
        elif event.type == "error" and errors is not None:
            errors.append(event.data["text"])
    return asked, results


async def test_the_question_about_a_command_that_could_only_read_says_why_it_is_asked(tmp_path: Path) -> None:
    reasons = list[str]()

    def deny(details: Any) -> ConfirmAnswer:
        reasons.append(details["reasons"][-1])
        return ConfirmAnswer(approved=False)

    commands = ["ls | head --follow", "cat ../notes.txt", "cat a > b"]
    await play(Session(workspace=tmp_path), *map(run, commands), answer=deny)
    assert reasons[:2] == [
        "It is not taken for a read: with these arguments `head` is not known to only read.",
        "It is not taken for a read: `../notes.txt` is not plainly a path of the workspace.",
    ]
    assert not reasons[2].startswith("It is not taken")


async def test_a_yes_for_the_session_covers_the_kind_and_always_covers_it_on_another_day(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    calls = [write("src/a.py"), write("src/b.py"), run("mkdir -p x"), run("mkdir y && touch y/z"), run("touch w")]
    session = Session(workspace=folder)
    asked, results = await play(session, *calls, answer=lambda _: remember("session"))
    assert asked == ["src/a.py", "mkdir -p x", "mkdir y && touch y/z"]
    assert {outcome for outcome, _ in results} == {"ok"}
    assert [str(rule) for rule in session.rules] == [
        "allow edit path=src/**",
        "allow bash_exec command=mkdir",
        "allow bash_exec command=touch",
    ]
    assert not home.exists()

    first = Session(workspace=folder)
    asked, _ = await play(first, *calls, answer=lambda _: remember("always"), home=home)
    assert (len(asked), first.rules) == (3, [])
    assert (home / "permissions.toml").stat().st_mode & 0o777 == 0o600
    again, _ = await play(Session(workspace=folder), *calls, answer=lambda _: remember("once"), home=home)
    assert again == []
    other = tmp_path / "other"
    (other / "src").mkdir(parents=True)
    elsewhere, _ = await play(Session(workspace=other), *calls, answer=lambda _: remember("once"), home=home)
    assert len(elsewhere) == 5


async def test_narrower_rules_may_be_stored_and_wider_ones_are_not(tmp_path: Path) -> None:
    narrow = parse_rule('allow bash_exec command="touch a"').model_copy(update={"scope": "session"})
    wide = parse_rule("allow bash_exec").model_copy(update={"scope": "session"})
    for given, kept in ((narrow, ['allow bash_exec command="touch a"']), (wide, [])):
        session = Session(workspace=tmp_path)
        answers = iter([remember("session", given), remember("once")])
        asked, _ = await play(session, run("touch a"), run("touch b"), answer=lambda _, given=answers: next(given))
        assert (asked, [str(rule) for rule in session.rules]) == (["touch a", "touch b"], kept)


async def test_what_is_asked_about_in_every_mode_offers_no_rule(tmp_path: Path) -> None:
    def answer(details: Any) -> ConfirmAnswer:
        assert not {"rule", "rules", "kinds", "exact_rule"} & details.keys()
        return remember("always")

    session = Session(workspace=tmp_path)
    asked, _ = await play(
        session, write(".git/config"), write(".git/config", "y"), answer=answer, home=tmp_path / "home"
    )
    assert (asked, session.rules) == ([".git/config"] * 2, [])
    assert not (tmp_path / "home" / "permissions.toml").exists()


async def test_edited_arguments_are_decided_about_again(tmp_path: Path) -> None:
    def edited(**arguments: Any) -> Answer:
        answers = iter([ConfirmAnswer(approved=True, arguments=arguments), ConfirmAnswer(approved=False)])
        return lambda _: next(answers)

    rules = [parse_rule(text).model_copy(update={"scope": "session"}) for text in ("deny bash_exec command=rm",)]
    session = Session(workspace=tmp_path, rules=rules)
    asked, results = await play(session, run("touch a"), answer=edited(command="touch b"))
    assert (asked, results[0][0], (tmp_path / "b").exists()) == (["touch a"], "ok", True)
    asked, results = await play(session, run("touch a"), answer=edited(command="touch c; rm b"))
    assert (asked, results[0][0]) == (["touch a"], "denied")
    assert "deny bash_exec command=rm" in results[0][1]
    asked, results = await play(session, run("touch a"), answer=edited(command="touch .git/config"))
    assert (asked, results[0][0]) == (["touch a", "touch .git/config"], "denied")
    assert not (tmp_path / "c").exists()


async def test_a_yes_to_edited_arguments_stores_no_kind_that_was_not_shown(tmp_path: Path) -> None:
    named = parse_rule("allow bash_exec command=touch").model_copy(update={"scope": "session"})
    wide = parse_rule("allow bash_exec command=make").model_copy(update={"scope": "session"})
    for rules, kept in (((), []), ((wide,), []), ((named,), ["allow bash_exec command=touch"])):
        session = Session(workspace=tmp_path)
        given = ConfirmAnswer(approved=True, arguments={"command": "touch b"}, remember="session", rules=rules)
        errors = list[str]()
        _, results = await play(session, run("mkdir a"), answer=lambda _, given=given: given, errors=errors)
        assert ([outcome for outcome, _ in results], [str(rule) for rule in session.rules]) == (["ok"], kept)
        said = [] if kept else ["The answer counts once, for this call"]
        assert [text.partition(":")[0] for text in errors] == said


async def test_a_change_of_the_mode_and_a_stored_rule_decide_the_questions_that_wait(tmp_path: Path) -> None:
    for mode, outcome in (("auto", "ok"), ("plan", "denied")):
        session = Session(workspace=tmp_path)

        def switch(_: Any, session: Session = session, mode: Any = mode) -> None:
            session.permission_mode = mode
            session.change_permissions()

        _, results = await play(session, run("touch a"), answer=switch)
        assert [outcome for outcome, _ in results] == [outcome]

    @tool(risk="write", parallel=True, assess=lambda arguments, context: Assessment(risk="write", hosts=("a.test",)))
    async def post(text: str) -> str:
        """Post a text."""
        return text

    session = Session(workspace=tmp_path)
    replies = [[call("post", {"text": "1"}), call("post", {"text": "2"})]]
    waiting = list[Any]()

    def answer_second(details: Any) -> ConfirmAnswer | None:
        waiting.append(details)
        return remember("session") if len(waiting) == 2 else None

    _, results = await play(session, *replies, answer=answer_second, tools=[post])
    assert results == [("ok", "1"), ("ok", "2")]
    assert waiting[0]["kinds"] == ["post at a.test"]


async def test_rules_that_cannot_be_read_deny_with_the_reason(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for text, problem in {
        "[[rules]]\ndecision = 'deny'\n": "rule 1: the rule is wrong in tool",
        "[[rules]\n": "is no TOML",
        "rule = 1\n": "has 'rule'",
    }.items():
        (home / "permissions.toml").write_text(text)
        _, results = await play(Session(workspace=tmp_path), run("touch a"), answer=lambda _: None, home=home)
        assert results[0][0] == "denied"
        assert problem in results[0][1]
    (home / "permissions.toml").write_text('[[rules]]\ndecision = "allow"\ntool = "bash_exec"\ncommand = "touch"\n')
    asked, results = await play(Session(workspace=tmp_path), run("touch a"), answer=lambda _: None, home=home)
    assert (asked, results[0][0]) == ([], "ok")


async def test_without_a_hub_stored_rules_that_ask_or_deny_hold_and_those_that_allow_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, asked = tmp_path / "home", list[str]()
    monkeypatch.setenv("AGX_HOME", str(home))

    def look(p: str) -> str:
        """Look at something."""
        return p

    def gate(request: Any) -> bool:
        asked.append(request.tool)
        return False

    async def outcomes(**options: Any) -> list[str]:
        model = ScriptedModel([[call("look", {"p": "x"}), write("p/x"), write("q/x")], "Done."])
        agent = Agent(model=model, tools=[look, file_write], **options)
        result = await agent.run("Go.", session=Session(workspace=tmp_path))
        return [event.data["outcome"] for event in result.events if event.type == "tool_result"]

    yes = AutoApproveConfirmGate()
    assert await outcomes(confirm_gate=yes) == ["ok", "ok", "ok"]
    FileRules(home).add(map(parse_rule, ["deny * path=p/**", "ask look", "allow edit path=q/**"]))
    assert await outcomes(confirm_gate=yes) == ["ok", "denied", "ok"]
    assert (await outcomes(confirm_gate=gate), asked) == (["denied"] * 3, ["look", "file_write"])
    assert await outcomes() == ["denied"] * 3
    (home / "permissions.toml").write_text("[[rules]\n")
    assert await outcomes(confirm_gate=yes) == ["denied"] * 3


async def test_calls_that_begin_together_share_one_read_of_the_rules_and_run_in_their_order(tmp_path: Path) -> None:
    class CountedRules(FileRules):
        reads = 0

        def list(self) -> Sequence[Rule]:
            self.reads += 1
            return super().list()

    began, rules = list[int](), CountedRules(tmp_path / "home")

    @tool(risk="read")
    async def look(n: int) -> None:
        """Look at something."""
        began.append(n)

    runtime = AgentRuntime(ScriptedModel([[call("look", {"n": n}) for n in range(8)], "Done."]), tools=[look])
    events = [event async for event in runtime.run_turn("Go.", Session(), context=TurnContext(rules=rules))]
    assert [event.data["outcome"] for event in events if event.type == "tool_result"] == ["ok"] * 8
    assert (began, rules.reads) == (list(range(8)), 1)
