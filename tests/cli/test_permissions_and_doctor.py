"""`agx permissions explain` and `agx doctor`: they look, they run nothing and leave nothing behind."""

from __future__ import annotations

import json
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("tool", "arguments", "mode", "decision"),
    [
        ("file_read", {"path": "a.txt"}, "default", "allow"),
        ("file_write", {"path": "a.txt", "content": "x"}, "default", "ask"),
        ("file_write", {"path": "a.txt", "content": "x"}, "accept_edits", "allow"),
        ("file_write", {"path": "a.txt", "content": "x"}, "plan", "deny"),
        ("bash_exec", {"command": "git -c core.pager=x log"}, "default", "ask"),
        ("bash_exec", {"command": "rm -rf ."}, "auto", "allow"),
    ],
)
def test_explain_says_what_a_call_would_get(
    agx: Any, tool: str, arguments: dict[str, str], mode: str, decision: str
) -> None:
    done = agx("permissions", "explain", tool, json.dumps(arguments), "--permission-mode", mode, "--json")
    row = json.loads(done.stdout)
    assert (done.returncode, row["decision"]) == (0, decision)
    assert sorted(row) == ["decision", "reasons", "rule"]
    assert all(isinstance(reason, str) for reason in row["reasons"])
    assert list(agx.folder.iterdir()) == []


def test_explain_without_json_is_for_people(agx: Any) -> None:
    done = agx("permissions", "explain", "file_write", '{"path": "a.txt", "content": "x"}')
    assert (done.returncode, done.stdout.split("\n")[0]) == (0, "ask (rule: default)")


def test_explain_refuses_an_unknown_tool_and_bad_arguments(agx: Any) -> None:
    unknown = agx("permissions", "explain", "file_raed", "{}")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "unknown tool 'file_raed'; known tools: " in unknown.stderr
    for arguments in ("[1]", "{", '{"wrong": 1}'):
        done = agx("permissions", "explain", "file_read", arguments)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr


def test_doctor_reports_versions_settings_files_models_and_the_sandbox(agx: Any, tmp_path: Any) -> None:
    agx.environment |= {"AGX_MAX_TOOL_ROUNDS": "12", "OPENAI_API_KEY": "sk-canary-canary-canary"}
    done = agx("doctor", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert {finding["topic"] for finding in report["findings"]} >= {
        "agenticx", "python", "settings", "home", "token", "keys", "servers", "sandbox",
    }  # fmt: skip
    assert report["settings"]["max_tool_rounds"] == {"value": 12, "source": "AGX_MAX_TOOL_ROUNDS"}
    assert report["settings"]["permission_mode"] == {"value": "default", "source": "default"}
    texts = " ".join(finding["text"] for finding in report["findings"])
    assert "OPENAI_API_KEY" in texts
    assert "an approved shell command has your full power" in texts
    assert "canary" not in done.stdout + done.stderr
    assert not (tmp_path / "home").exists()


def test_doctor_finds_what_others_can_read_and_says_how_to_repair_it(agx: Any, tmp_path: Any) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "token").write_text("x" * 43)
    (home / "token").chmod(0o644)
    (home / "settings.toml").write_text('permission_mode = "plan"\n')
    done = agx("doctor")
    assert done.returncode == 1
    assert f"!!  token        {home / 'token'} has mode 0644, so others can read it: chmod 600\n" in done.stdout
    assert f"permission_mode = plan from {home / 'settings.toml'}\n" in done.stdout


def test_doctor_still_answers_when_settings_are_wrong(agx: Any) -> None:
    agx.environment["AGX_PERMISSION_MODE"] = "bold"
    done = agx("doctor")
    assert done.returncode == 1
    assert "!!  settings     AGX_PERMISSION_MODE is 'bold'" in done.stdout
