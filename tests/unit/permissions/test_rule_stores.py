"""Stores of rules: a file that people edit and processes share, or the database of several workers."""

from __future__ import annotations

import secrets
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from agenticx import ConfirmAnswer, open_hub
from agenticx.errors import SettingsError
from agenticx.permissions import Rule, parse_rule
from agenticx.permissions.rule_stores import (
    FileRules,
    RuleStore,
    RulesUnusable,
    SharedRules,
    UnknownRule,
    read_rule_file,
    refuse_unused_file,
)
from agenticx.sessions import open_store
from agenticx.settings import load_settings
from agenticx.shared_state.state import SharedState
from agenticx.shared_state.values import MemorySharedValues
from agenticx.testing import ScriptedModel, call, say
from tests.support.timeouts import longest_hold, slowdown


@pytest.fixture
def values() -> MemorySharedValues:
    return MemorySharedValues()


@pytest.fixture(params=["file", "shared"])
def stores(
    request: pytest.FixtureRequest, tmp_path: Path, values: MemorySharedValues
) -> Iterator[tuple[RuleStore, RuleStore]]:
    """Yield the stores of two processes that share their rules."""
    if request.param == "file":
        yield FileRules(tmp_path / "home"), FileRules(tmp_path / "home")
        return
    secret = tmp_path / "secret"
    secret.write_text(secrets.token_hex(32))
    secret.chmod(0o600)
    settings = load_settings({"home": tmp_path / "home", "secret_file": secret}, environ={})
    with closing(SharedState(values, settings)) as one, closing(SharedState(values, settings)) as two:
        yield SharedRules(one), SharedRules(two)


def test_rules_are_those_that_any_process_added_and_none_removed(
    stores: tuple[RuleStore, RuleStore], values: MemorySharedValues
) -> None:
    one, two = stores
    assert list(one.list()) == []
    commit = parse_rule('allow bash_exec command="git commit"', workspace="/work")
    [stored] = one.add([commit])
    assert (stored.id.startswith("rul_"), stored.created_at != "", stored.command) == (True, True, "git commit")
    assert two.add([commit]) == [stored]  # not stored twice
    exact = Rule.model_validate(
        {"decision": "allow", "tool": "t", "exact": True, "digest": "d", "arguments": {"a": None}, "scope": "user"}
    )
    two.add([parse_rule('deny edit path="a\\"b\x7f"'), exact])
    assert one.remove(stored.id) == stored
    with pytest.raises(UnknownRule, match="agx permissions list"):
        one.remove(stored.id)
    left = sorted((rule.tool, rule.path, rule.arguments) for rule in one.list())
    assert left == [("edit", 'a"b\x7f', None), ("t", None, {"a": None})]
    assert not any(b"edit" in value for value in values.items("").values())


def test_writers_of_several_processes_lose_no_rule(tmp_path: Path) -> None:
    def write(number: int) -> None:
        store = FileRules(tmp_path)  # as another process has it: with a copy and a lock of its own
        for part in range(5):
            store.add([parse_rule(f"deny edit path=folder-{number}-{part}/**")])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(8)))
    file = FileRules(tmp_path).path
    assert len({rule.path for rule in read_rule_file(file)}) == len({rule.id for rule in read_rule_file(file)}) == 40
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


HAND_WRITTEN = """\
[[rules]]
decision = "deny"
tool = "bash_exec"
command = "git push"

[[rules]]  # only here
decision = "allow"
tool = "edit"
path = "src/**"
workspace = "/work"
"""


def test_a_file_written_by_hand_has_rules_with_ids_and_scopes(tmp_path: Path) -> None:
    store = FileRules(tmp_path)
    store.path.write_text(HAND_WRITTEN)
    push, edits = store.list()
    assert [(rule.scope, rule.workspace) for rule in (push, edits)] == [("user", None), ("workspace", "/work")]
    store.path.write_text(f'[[rules]]\ndecision = "ask"\ntool = "web_fetch"\n\n{HAND_WRITTEN}')  # one more, in front
    store.add([parse_rule("deny x")])
    assert store.remove(store.list()[1].id).command == "git push"
    assert [rule.tool for rule in store.list()] == ["web_fetch", "edit", "x"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[[rules", "is no TOML: "),
        ("[rules]", "'rules' that are no [[rules]] tables"),
        ("rule = 1", "has 'rule'; it has only [[rules]] tables"),
        (HAND_WRITTEN.replace('"deny"', '"never"'), "rule 1: the rule is wrong in decision: "),
        (
            HAND_WRITTEN.replace("path =", "pth ="),
            "rule 2: the rule is wrong in pth: there is no such key; keys are id, decision, tool, path, ",
        ),
        (HAND_WRITTEN.replace("tool =", 'id = "a"\ntool ='), "rule 2: another rule has the id 'a'"),
        (HAND_WRITTEN + 'scope = "session"', "rule 2: the rule is wrong: only a rule of scope workspace"),
    ],
)
@pytest.mark.anyio
async def test_with_a_damaged_file_calls_are_denied_and_the_file_is_named(
    tmp_path: Path, content: str, problem: str
) -> None:
    home = tmp_path / "home"
    file = FileRules(home).path
    home.mkdir()
    file.write_text(content)
    model = ScriptedModel([call("file_read", {"path": "a"}), say("Then not.")])
    settings = load_settings({"home": home}, environ={})
    async with open_hub("memory://", model=model, settings=settings, workspace=tmp_path) as hub:
        session = await hub.create()
        events = [event async for event in hub.run_turn(session.id, "Read a")]
    (result,) = [event.data for event in events if event.type == "tool_result"]
    assert (result["outcome"], result["result"].startswith("Denied: ")) == ("denied", True)
    assert (str(file) in result["result"], problem in result["result"]) == (True, True), result["result"]
    with pytest.raises(RulesUnusable):
        FileRules(home).add([parse_rule("deny x")])
    assert file.read_text() == content


@pytest.mark.anyio
async def test_a_yes_that_cannot_be_stored_counts_once_and_the_person_is_told(tmp_path: Path) -> None:
    home = tmp_path / "home"
    model = ScriptedModel([call("file_write", {"path": "a", "content": "x"}), say("Done.")])
    settings = load_settings({"home": home}, environ={})
    async with open_hub("memory://", model=model, settings=settings, workspace=tmp_path) as hub:
        session = await hub.create()
        outcomes = list[str]()
        async for event in hub.run_turn(session.id, "Write a"):
            if event.type == "confirm_required":
                home.mkdir(exist_ok=True)
                (home / ".permissions.toml.lock").mkdir()  # so that no process can take the lock
                answer = ConfirmAnswer(approved=True, remember="always")
                await hub.answer(event.data["id"], answer, digest=event.data["digest"])
            elif event.type == "error":
                outcomes.append(event.data["code"])
                assert (
                    f"The answer counts once, for this call: the rules in '{FileRules(home).path}'"
                    in event.data["text"]
                )
            elif event.type == "tool_result":
                outcomes.append(event.data["outcome"])
    assert (outcomes, (tmp_path / "a").read_text(), FileRules(home).path.exists()) == (
        ["rule_not_stored", "ok"],
        "x",
        False,
    )


@pytest.mark.anyio
@pytest.mark.ci_lane
async def test_a_long_command_and_many_rules_do_not_hold_the_event_loop(tmp_path: Path) -> None:
    home, text = tmp_path / "home", "; ".join(f"git -q x{number}" for number in range(1_000)) + "; x=1"
    FileRules(home).add([parse_rule(f"deny bash_exec command='git push{number}'") for number in range(2_000)])
    model = ScriptedModel([call("bash_exec", {"command": text}), say("Then not.")])
    settings = load_settings({"home": home}, environ={})
    async with open_hub("memory://", model=model, settings=settings, workspace=tmp_path) as hub:
        session = await hub.create()
        async with longest_hold() as hold:
            async for event in hub.run_turn(session.id, "Go on"):
                if event.type == "confirm_required":
                    await hub.answer(event.data["id"], ConfirmAnswer(approved=False), digest=event.data["digest"])
    assert hold.longest < 0.4 * slowdown()


def test_a_worker_of_a_database_refuses_rules_in_its_own_folder(tmp_path: Path) -> None:
    refuse_unused_file(tmp_path)
    file = FileRules(tmp_path).path
    file.write_text("# nothing\n")
    refuse_unused_file(tmp_path)
    file.write_text(HAND_WRITTEN)
    settings = load_settings({"home": tmp_path}, environ={"AGX_STORE_URL": "postgresql://a@127.0.0.1:1/agx"})
    with pytest.raises(SettingsError, match=f"`agx permissions import {file}` moves them there"):
        open_store(settings)
