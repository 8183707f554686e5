"""`agx keys`: keys from stdin or a terminal, stored privately, never shown, used by other commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.promise("I1")

KEY = "canary-of-a-key-4711"


@pytest.fixture
def agx(agx: Any) -> Any:
    """Return a shell in which no command may print the key, and no local server is asked."""
    local = {f"{name}_BASE_URL": "http://127.0.0.1:9/v1" for name in ("OLLAMA", "LMSTUDIO", "LLAMACPP", "VLLM")}
    agx.environment |= local
    return agx


def test_a_key_is_stored_listed_used_and_removed(agx: Any, tmp_path: Path) -> None:
    path = tmp_path / "home" / "keys.json"
    assert outcome(agx("keys", "list")) == (
        0,
        "",
        "agx keys: no provider has a key; `agx keys set PROVIDER` stores one\n",
    )
    assert not path.exists()
    stored = f"agx keys: the key of anthropic is stored in {path}\n"
    assert outcome(agx("keys", "set", "anthropic", stdin=f" {KEY}\n\n")) == (0, "", stored)
    assert (path.stat().st_mode & 0o777, KEY in path.read_text()) == (0o600, True)
    assert outcome(agx("keys", "list")) == (0, "anthropic  file     ANTHROPIC_API_KEY\n", "")
    rows = [json.loads(line) for line in agx("keys", "list", "--json").stdout.splitlines()]
    assert rows == [{"provider": "anthropic", "source": "file", "variable": "ANTHROPIC_API_KEY"}]

    agx.environment["AGX_MODEL"] = ""
    assert agx("models").stdout.split()[0] == "anthropic:claude-sonnet-4-5"
    (finding,) = [line for line in agx("doctor").stdout.splitlines() if " keys " in line]
    assert finding.startswith("ok  keys         ANTHROPIC_API_KEY is stored (file); --online tests it at https://api.")

    assert outcome(agx("keys", "remove", "anthropic")) == (0, "", "agx keys: the stored key of anthropic is removed\n")
    assert outcome(agx("keys", "remove", "anthropic")) == (1, "", "agx keys: no key of anthropic is stored\n")
    assert agx("models").stdout.split()[0] == "demo"


@pytest.mark.ci_lane
def test_without_an_action_the_keys_are_listed_with_the_way_to_change_them(agx: Any) -> None:
    advice = "agx keys: `agx keys set PROVIDER` stores a key, `agx keys remove PROVIDER` removes it; "
    assert agx("keys", "set", "anthropic", stdin=KEY).returncode == 0
    assert outcome(agx("keys")) == (
        0,
        "anthropic  file     ANTHROPIC_API_KEY\n",
        f"{advice}`agx help keys` says more\n",
    )


@pytest.mark.ci_lane
def test_the_environment_takes_precedence_and_is_not_changed(agx: Any) -> None:
    agx.environment["GROQ_API_KEY"] = "canary-in-the-environment"
    done = agx("keys", "set", "groq", stdin=KEY)
    assert done.returncode == 0
    assert "agx keys: GROQ_API_KEY is set in this environment and takes precedence over it here\n" in done.stderr
    assert outcome(agx("keys", "list")) == (0, "groq  env      GROQ_API_KEY\n", "")
    assert outcome(agx("keys", "remove", "groq")) == (
        0,
        "",
        "agx keys: the stored key of groq is removed\n"
        "agx keys: GROQ_API_KEY is set in this environment and still applies here\n",
    )
    sentence = "agx keys: the key of groq is in the environment, not stored; unset GROQ_API_KEY there\n"
    assert outcome(agx("keys", "remove", "groq")) == (1, "", sentence)


@pytest.mark.parametrize(
    ("words", "stdin", "error"),
    [
        (("set", "nope"), KEY, "agx: unknown provider 'nope'; providers with a key: openai, openai-chat, anthropic, "),
        (("set", "ollama"), KEY, "agx: provider 'ollama' needs no key; providers with a key: openai, "),
        (("remove", "nope"), "", "agx: unknown provider 'nope'; providers with a key: openai, "),
        (
            ("set", "openai", KEY),
            "",
            "agx keys: a key is never an argument, which others can read; it is asked for, or ",
        ),
        (("set", "openai", "--key", KEY), "", "agx keys: a key is never an argument, which others can read"),
        (("set", "openai"), "", "agx keys: the key is empty\n"),
        (("set", "openai"), f"two {KEY}\n", "agx keys: the key has blanks, control or non-ASCII characters within it"),
        (("set", "openai"), f"{KEY}\n{KEY}-2\n", "agx keys: more than one line was given; a key is one line\n"),
        (("set", "openai"), f"{'x' * 20_000}\n", "agx keys: the key has more than 4096 characters\n"),
        (("set",), "", "usage: agx keys set "),
        (("list", "openai"), "", "usage: agx "),
    ],
)
def test_mistakes_are_usage_errors_that_say_what_is_right(
    agx: Any, tmp_path: Path, words: tuple[str, ...], stdin: str, error: str
) -> None:
    code, out, err = outcome(agx("keys", *words, stdin=stdin))
    assert (code, out, err[: len(error)]) == (2, "", error)
    assert not (tmp_path / "home" / "keys.json").exists()


@pytest.mark.ci_lane
def test_a_damaged_file_is_an_error_of_every_command_that_needs_it(agx: Any, tmp_path: Path) -> None:
    agx("keys", "set", "groq", stdin=KEY)
    path = tmp_path / "home" / "keys.json"
    path.chmod(0o644)
    sentence = f"{path} has mode 0644; only its owner may read it: chmod 600"
    agx.environment["AGX_MODEL"] = ""
    for words in (("keys", "list"), ("keys", "set", "groq"), ("models",), ("serve", "--port", "0")):
        assert outcome(agx(*words, stdin=KEY)) == (2, "", f"agx: {sentence}\n")
    done = agx("doctor")
    assert (done.returncode, f"!!  models       {sentence}\n" in done.stdout) == (1, True)


def test_a_terminal_does_not_show_the_key(agx: Any, terminal: Callable[..., Any], tmp_path: Path) -> None:
    screen = terminal("keys", "set", "openai")
    screen.wait_for("Key for openai: ")
    screen.type(f"{KEY}\n")
    assert screen.exit_code() == 0
    assert "the key of openai and openai-chat is stored in " in screen.screen.replace("\n", "")
    assert "canary" not in screen.raw
    assert KEY in (tmp_path / "home" / "keys.json").read_text()


def test_ctrl_c_at_the_question_stores_nothing(agx: Any, terminal: Callable[..., Any], tmp_path: Path) -> None:
    screen = terminal("keys", "set", "openai")
    screen.wait_for("Key for openai: ")
    assert screen.interrupt() == 130
    assert not (tmp_path / "home" / "keys.json").exists()


def test_all_models_are_listed_on_request(agx: Any) -> None:
    usable = [json.loads(line) for line in agx("models", "--json").stdout.splitlines()]
    assert [(row["model"], row["available"]) for row in usable] == [("demo", True)]
    rows = {row["model"]: row for row in map(json.loads, agx("models", "--all", "--json").stdout.splitlines())}
    assert next(iter(rows)) == "demo"
    assert (rows["openai:gpt-5.4"]["available"], rows["openai:gpt-5.4"]["why"]) == (
        False,
        "OPENAI_API_KEY is not set, and no key is stored",
    )
    assert rows["ollama:qwen3"]["why"] == "no local server has it"


def outcome(done: Any) -> tuple[int, str, str]:
    """Return the exit code and both outputs, in which the key must not be."""
    assert "canary" not in done.stdout + done.stderr
    return done.returncode, done.stdout, done.stderr
