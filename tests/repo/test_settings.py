"""Settings: their sources, their ranges, and the limits of a project file."""

from __future__ import annotations

import ast
import logging
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agenticx.errors import SettingsError
from agenticx.settings import (
    PROJECT_SETTINGS,
    Settings,
    child_environment,
    config_layers,
    load_settings,
    prompt_text,
    provider_key,
    secret_values,
)
from tests.repo.default_toml import render
from tests.support.modules import Module, modules

ROOT = Path(__file__).parents[2]


def write_settings(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.toml").write_text(text, encoding="utf-8")


# --- config/default.toml ----------------------------------------------------------------------------------------------


def test_default_toml_matches_the_code() -> None:
    written = (ROOT / "config" / "default.toml").read_text(encoding="utf-8")
    assert written == render(), "run: python -m tests.repo.default_toml > config/default.toml"


def test_default_toml_names_every_setting_and_its_values_are_accepted() -> None:
    text = (ROOT / "config" / "default.toml").read_text(encoding="utf-8")
    names = set(re.findall(r"^(?:# )?(\w+) = ", text, re.MULTILINE))
    assert names == set(Settings.model_fields)
    assert Settings.model_validate(tomllib.loads(text)) == Settings.model_validate({})


def _names_read_in(module: Module) -> Iterator[str]:
    """Yield the attributes read from objects called settings, in the settings' module also from `self` and `base`."""
    owner = r"(settings|base|self)$" if module.path.name == "settings.py" else "settings$"
    for node in ast.walk(module.tree) if "settings" in module.text else ():
        if isinstance(node, ast.Attribute) and re.search(owner, ast.unparse(node.value)):
            yield node.attr


def test_every_setting_is_read_somewhere() -> None:
    packages = [module for module in modules() if module.path.parts[0] != "tests"]
    read = {name for module in packages for name in _names_read_in(module)}
    assert set(Settings.model_fields) - read == set()


def test_unset_thresholds_are_none_and_set_ones_keep_their_value(tmp_path: Path) -> None:
    names = ("compaction_threshold_messages", "compaction_threshold_chars")
    assert [getattr(load_settings(environ={}), name) for name in names] == [None, None]
    write_settings(tmp_path, "compaction_threshold_messages = 20")
    settings = load_settings(environ={"AGX_HOME": str(tmp_path), "AGX_COMPACTION_THRESHOLD_CHARS": "48000"})
    assert [getattr(settings, name) for name in names] == [20, 48_000]


# --- precedence -------------------------------------------------------------------------------------------------------


def test_precedence_is_argument_variable_project_user_default(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    every = dict.fromkeys(
        ["tool_timeout_seconds", "hook_timeout_seconds", "tool_result_chars", "compaction_retain_messages"], 1000
    )
    write_settings(home, "\n".join(f"{name} = {value}" for name, value in every.items()))
    write_settings(
        project / ".agenticx", "tool_timeout_seconds = 2000\nhook_timeout_seconds = 2000\ntool_result_chars = 2000\n"
    )
    environ = {"AGX_HOME": str(home), "AGX_TOOL_TIMEOUT_SECONDS": "3000", "AGX_HOOK_TIMEOUT_SECONDS": "3000"}

    settings = load_settings({"tool_timeout_seconds": 4000, "model": None}, environ=environ, project=project)

    assert settings.tool_timeout_seconds == 4000
    assert settings.hook_timeout_seconds == 3000
    assert settings.tool_result_chars == 2000
    assert settings.compaction_retain_messages == 1000
    assert settings.confirm_timeout_seconds == 600
    assert settings.model is None


def test_settings_apply_to_one_workspace_after_another(tmp_path: Path) -> None:
    home, one, two = tmp_path / "home", tmp_path / "one", tmp_path / "two"
    write_settings(home, "tool_timeout_seconds = 1\nhook_timeout_seconds = 1")
    write_settings(one / ".agenticx", "tool_timeout_seconds = 2\nconfirm_timeout_seconds = 2\nmax_tool_rounds = 12")
    write_settings(two / ".agenticx", "hook_timeout_seconds = 3")
    environ = {"AGX_HOME": str(home), "AGX_MAX_TOOL_ROUNDS": "50"}

    everywhere = load_settings(environ=environ)
    in_one = everywhere.in_workspace(one)

    def shown(settings: Settings) -> tuple[float, ...]:
        return (
            settings.tool_timeout_seconds,
            settings.hook_timeout_seconds,
            settings.confirm_timeout_seconds,
            settings.max_tool_rounds,
        )

    assert shown(everywhere) == (1, 1, 600, 50)
    assert shown(in_one) == (2, 1, 2, 50)
    assert in_one == load_settings(environ=environ, project=one)
    assert shown(in_one.in_workspace(two)) == (1, 3, 600, 50)
    assert in_one.in_workspace(tmp_path / "nowhere") == everywhere


def test_settings_constructed_directly_count_as_arguments(tmp_path: Path) -> None:
    write_settings(tmp_path / ".agenticx", "tool_timeout_seconds = 1\nhook_timeout_seconds = 1")
    given: dict[str, Any] = {"home": tmp_path / "home", "tool_timeout_seconds": 50}
    made = Settings(**given).in_workspace(tmp_path)
    assert (made.tool_timeout_seconds, made.hook_timeout_seconds) == (50, 1)


def test_a_wrong_value_in_a_file_is_shown_shortened(tmp_path: Path) -> None:
    for text in (f'tool_timeout_seconds = "{"x" * 200_000}"', f"{'y' * 200_000} = 1"):
        write_settings(tmp_path, text)
        with pytest.raises(SettingsError) as refused:
            load_settings(environ={"AGX_HOME": str(tmp_path)})
        assert len(str(refused.value)) < 2_000


def test_without_a_project_no_project_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_settings(tmp_path / ".agenticx", "tool_timeout_seconds = 1")
    monkeypatch.chdir(tmp_path)
    assert load_settings(environ={"AGX_HOME": str(tmp_path / "none")}).tool_timeout_seconds == 120


def test_an_empty_variable_counts_as_unset() -> None:
    environ = {"AGX_HOME": "", "AGX_MODEL": "", "AGX_ENABLED_TOOLS": " ", "AGX_WORKSPACE_ROOT": ""}
    assert load_settings(environ=environ) == load_settings(environ={})
    assert load_settings(environ=environ).home == Path.home() / ".agenticx"


def test_paths_and_lists_are_parsed_in_their_usual_forms(tmp_path: Path) -> None:
    settings = load_settings(
        environ={
            "AGX_HOME": str(tmp_path),
            "AGX_WORKSPACE_ROOT": "~/work",
            "AGX_ENABLED_TOOLS": "file_read, list_files",
            "AGX_ALLOWED_ORIGINS": "app://desktop,http://localhost:5173 null",
            "AGX_ALLOWED_HOSTS": "studio.example:8765",
            "AGX_PERMISSION_MODE": "Plan",
        }
    )
    assert settings.workspace_root == Path.home() / "work"
    assert settings.enabled_tools == ("file_read", "list_files")
    assert settings.allowed_origins == ("app://desktop", "http://localhost:5173", "null")
    assert settings.allowed_hosts == ("studio.example:8765",)
    assert settings.permission_mode == "plan"


# --- ranges -----------------------------------------------------------------------------------------------------------

_OTHER_RANGE = {"turn_timeout_seconds", "question_timeout_seconds", "drain_seconds"}
SECONDS = sorted(name for name in Settings.model_fields if name.endswith("_seconds") and name not in _OTHER_RANGE)


@pytest.mark.parametrize("name", SECONDS)
def test_seconds_are_decimals_within_the_range(name: str) -> None:
    variable = f"AGX_{name.upper()}"
    for text, value in {"0.05": 0.05, "86400": 86400.0, "1.5": 1.5}.items():
        assert getattr(load_settings(environ={variable: text}), name) == value
    for text in ("0", "0.049", "86400.1", "-1", "nan", "inf", "1e9", "soon", "", "1,5"):
        with pytest.raises(SettingsError) as refused:
            load_settings(environ={variable: text})
        assert str(refused.value) == f"{variable} is {text!r}; it must be a decimal number from 0.05 to 86400"


def test_a_worker_may_have_no_time_for_its_turns() -> None:
    assert load_settings(environ={"AGX_DRAIN_SECONDS": "0"}).drain_seconds == 0.0
    with pytest.raises(SettingsError, match="AGX_DRAIN_SECONDS is '-1'; it must be a decimal number from 0 to 86400"):
        load_settings(environ={"AGX_DRAIN_SECONDS": "-1"})


def test_a_turn_timeout_of_zero_disables_it_and_a_tiny_one_is_refused() -> None:
    assert load_settings(environ={"AGX_TURN_TIMEOUT_SECONDS": "0"}).turn_timeout_seconds == 0
    with pytest.raises(SettingsError, match=r"AGX_TURN_TIMEOUT_SECONDS is '0.01'; .* or 0 for off"):
        load_settings(environ={"AGX_TURN_TIMEOUT_SECONDS": "0.01"})


def test_the_confirm_timeout_is_between_a_second_and_a_year() -> None:
    assert load_settings(environ={}).question_timeout_seconds == 604_800
    assert load_settings(environ={"AGX_QUESTION_TIMEOUT_SECONDS": "31536000"}).question_timeout_seconds == 31_536_000
    for text in ("0.5", "31536001"):
        with pytest.raises(SettingsError, match=r"it must be a decimal number from 1 to 31536000$"):
            load_settings(environ={"AGX_QUESTION_TIMEOUT_SECONDS": text})


@pytest.mark.parametrize(("given", "used"), [("3", 10), ("-5", 10), ("10", 10), ("77", 77), ("120", 120), ("999", 120)])
def test_max_tool_rounds_is_clamped_with_a_log_line(given: str, used: int, caplog: pytest.LogCaptureFixture) -> None:
    assert load_settings(environ={"AGX_MAX_TOOL_ROUNDS": given}).max_tool_rounds == used
    lines = [f"max_tool_rounds is {given}; using {used}, the nearest from 10 to 120"] if int(given) != used else []
    assert [record.getMessage() for record in caplog.records] == lines


@pytest.mark.parametrize("given", ["", "many", "30.0", "1e2", "0x20", "nan", "9" * 5000])
def test_max_tool_rounds_must_be_an_integer(given: str) -> None:
    with pytest.raises(SettingsError, match="it must be a whole number from 10 to 120"):
        load_settings(environ={"AGX_MAX_TOOL_ROUNDS": given})


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("AGX_ON_EXHAUSTED", "retry", "it must be one of error, partial"),
        ("AGX_PERMISSION_MODE", "yolo", "it must be one of default, accept_edits, plan, auto"),
        ("AGX_PERMISSION_MODE", "plann", "it must be one of default, accept_edits, plan, auto; did you mean plan?"),
        ("AGX_LOG_LEVEL", "loud", "it must be one of debug, info, warning, error"),
        ("AGX_ALLOWED_ORIGINS", "*", "it must be exact origins, separated by commas"),
        ("AGX_ALLOWED_ORIGINS", "https://a.example/path", "it must be exact origins, separated by commas"),
        ("AGX_ALLOWED_HOSTS", "http://a.example", "it must be host names, separated by commas"),
        ("AGX_HOME", "~nobody-here/x", "it must be a path whose ~ names an existing user"),
        ("AGX_STATUS_QUERY_BUDGET_PER_TURN", "-1", "it must be a whole number from 0 to 1000"),
        ("AGX_TEAM_MAX_TURNS", "0", "it must be a whole number from 1 to 10000"),
        ("AGX_COMPACTION_THRESHOLD_MESSAGES", "7", "it must be a whole number from 8 to 100000"),
    ],
)
def test_a_refusal_names_the_variable_its_value_and_what_would_be_right(
    variable: str, value: str, sentence: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(environ={variable: value})
    assert str(refused.value) == f"{variable} is {value!r}; {sentence}"


SQLITE_OR_POSTGRES = (
    "it must be sqlite:///PATH, without options after a '?', or postgresql://USER:PASSWORD@HOST/DATABASE"
)
ONE_OR_MORE = (
    "it must be postgresql://USER:PASSWORD@HOST/DATABASE, or several of them separated by spaces; special characters"
    " are percent-encoded ('@' in a password is %40, a space in a name %20)"
)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mysql://me:hunter22@db/agx", SQLITE_OR_POSTGRES),
        ("sqlite:///hunter22.db?mode=ro", SQLITE_OR_POSTGRES),
        ("postgresql://me:hunter22@home@db/agx", ONE_OR_MORE),
        ("postgresql://me:hunter22/@db/agx", ONE_OR_MORE),
        ("postgresql://me:hunter22#@db/agx", ONE_OR_MORE),
        ("postgresql://me:hunter22@a/agx, postgresql://me:hunter22@b/agx", ONE_OR_MORE),
        ("postgresql://me:hunter22@a/agx sqlite:///chat.db", ONE_OR_MORE),
        ("postgresql://me:hunter22@a/agx postgresql://me:hunter22@a/agx", "it must name each PostgreSQL database once"),
    ],
)
def test_a_refused_store_url_does_not_show_its_password(url: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(environ={"AGX_STORE_URL": url})
    assert str(refused.value) == f"AGX_STORE_URL is not usable; {sentence}"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db/agx",
        "postgres://me:hunter%4022@db:6432/agx?sslmode=require",
        "postgresql://me:hunter22@a:5432,[::1]:5433/agx?target_session_attrs=read-write",
        "postgresql:///agx?host=/run/postgresql&user=me@example",
    ],
)
def test_the_urls_of_a_postgres_store_are_separated_by_blanks_and_not_shown(url: str) -> None:
    settings = load_settings(environ={"AGX_STORE_URL": f" {url}\n postgresql://other:hunter22@b/agx "})
    assert settings.postgres_urls == (url, "postgresql://other:hunter22@b/agx")
    assert "hunter" not in repr(settings)
    assert settings.private_paths == (settings.home,)
    assert load_settings({"store_url": "sqlite:///chat.db"}, environ={}).postgres_urls == ()


def test_a_misspelt_variable_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    load_settings(environ={"AGX_TOOL_TIMOUT_SECONDS": "5", "AGX_SOMETHING_ELSE_ENTIRELY": "1"})
    assert [record.getMessage() for record in caplog.records] == [
        "AGX_TOOL_TIMOUT_SECONDS is not a setting and has no effect; did you mean AGX_TOOL_TIMEOUT_SECONDS?"
    ]


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(SettingsError, match="'colour' is not a setting; settings are: allowed_hosts, "):
        load_settings({"colour": "red"}, environ={})


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.promise("F6")
@pytest.mark.parametrize("name", sorted(set(Settings.model_fields) - PROJECT_SETTINGS))
def test_a_project_cannot_set_approval_permissions_or_paths(tmp_path: Path, name: str) -> None:
    write_settings(tmp_path / ".agenticx", f'{name} = "auto"')
    with pytest.raises(SettingsError, match=f"'{name}' in .* may not be set here; remove it from that file"):
        load_settings(environ={}, project=tmp_path)


def test_the_settings_a_project_may_set_are_durations_and_amounts() -> None:
    fields = [Settings.model_fields[name] for name in PROJECT_SETTINGS]
    assert {type((field.examples or [field.default])[0]) for field in fields} <= {int, float}
    assert "permission_mode" not in PROJECT_SETTINGS
    assert "model" not in PROJECT_SETTINGS


@pytest.mark.parametrize("variables", [{}, {"AGX_HOME": "{home}/.agenticx"}, {"AGX_HOME": "{home}/other"}])
def test_the_user_file_is_not_read_as_a_project_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_settings(tmp_path / ".agenticx", 'permission_mode = "plan"\nmax_tool_rounds = 12')
    environ = {name: value.format(home=tmp_path) for name, value in variables.items()}
    settings = load_settings(environ=environ, project=tmp_path)
    elsewhere = environ.get("AGX_HOME", "").endswith("other")
    assert (settings.permission_mode, settings.max_tool_rounds) == (("default", 30) if elsewhere else ("plan", 12))


def make_unusable(path: Path, kind: str) -> None:
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to("nowhere")


@pytest.mark.promise("F6")
@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("pipe", "it is not a regular file"),
        ("folder", "it is not a regular file"),
        ("link", "it is a link to 'nowhere', which is missing"),
    ],
)
def test_what_is_no_regular_file_is_refused_in_place_of_a_file_of_settings(
    tmp_path: Path, kind: str, problem: str
) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    for folder in home / "prompts", project / ".agenticx":
        folder.mkdir(parents=True)
    for path, load in (
        (project / ".agenticx" / "settings.toml", lambda: load_settings(environ={"AGX_HOME": "~/x"}, project=project)),
        (home / "models.toml", lambda: list(config_layers("models.toml", home=home))),
        (home / "prompts" / "compaction.md", lambda: prompt_text("compaction", home=home)),
        (home / "settings.toml", lambda: load_settings(environ={"AGX_HOME": str(home)})),
    ):
        make_unusable(path, kind)
        with pytest.raises(SettingsError) as refused:
            load()
        assert str(refused.value) == f"{path} cannot be read: {problem}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("tool_timeout_seconds = ", r"settings\.toml is not TOML: "),
        ("a = " + "[" * 5000, r"settings\.toml is not TOML: "),
        (".".join("a" * 100_000) + " = 1", r"settings\.toml is not TOML: line 1 has more than 2,000 dots"),
        ("x" * 300_000, r"settings\.toml cannot be read: it has more than 262,144 bytes"),
        ("colour = 1", r"'colour' in .*settings\.toml is not a setting; remove it from that file$"),
        ("max_tool_round = 3", r"settings\.toml is not a setting; did you mean 'max_tool_rounds'\?$"),
        ("tool_timeout_seconds = true", r"tool_timeout_seconds in .*settings\.toml is True; it must be a decimal"),
        ("max_tool_rounds = 30.0", r"max_tool_rounds in .*settings\.toml is 30\.0; it must be a whole number"),
    ],
)
def test_a_bad_settings_file_is_refused_by_name(tmp_path: Path, text: str, sentence: str) -> None:
    write_settings(tmp_path, text)
    with pytest.raises(SettingsError, match=sentence):
        load_settings(environ={"AGX_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    "text", ["[runtime]\nmax_tool_rounds = 40", "max_tool_rounds = 40\nruntime.max_tool_rounds = 40"]
)
def test_max_tool_rounds_may_be_set_under_its_alias_in_the_runtime_table(tmp_path: Path, text: str) -> None:
    write_settings(tmp_path / "home", text)
    write_settings(tmp_path / "work" / ".agenticx", "[runtime]\nmax_tool_rounds = 50")
    everywhere = load_settings(environ={"AGX_HOME": str(tmp_path / "home")})
    assert everywhere.max_tool_rounds == 40
    assert everywhere.in_workspace(tmp_path / "work").max_tool_rounds == 50
    assert "max_tool_rounds" in everywhere.model_fields_set


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "max_tool_rounds = 40\n[runtime]\nmax_tool_rounds = 50",
            "runtime.max_tool_rounds in {file} is 50 and max_tool_rounds is 40; they are the same setting, so leave one"
            " of them out",
        ),
        (
            "[runtime]\ntool_timeout_seconds = 5",
            "'runtime.tool_timeout_seconds' in {file} is not a setting; the only one in that table is"
            " runtime.max_tool_rounds",
        ),
        ("runtime = 5", "'runtime' in {file} is not a setting; the only one in that table is runtime.max_tool_rounds"),
        (
            "[runtime]\nmax_tool_rounds = 'x'",
            "runtime.max_tool_rounds in {file} is 'x'; it must be a whole number from 10 to 120",
        ),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_by_name(tmp_path: Path, text: str, sentence: str) -> None:
    write_settings(tmp_path, text)
    with pytest.raises(SettingsError) as refused:
        load_settings(environ={"AGX_HOME": str(tmp_path)})
    assert str(refused.value) == sentence.format(file=tmp_path / "settings.toml")


def test_the_home_must_be_a_folder_or_creatable(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("")
    link.symlink_to(tmp_path / "nowhere")
    for home, sentence in (
        (file, f"AGX_HOME is '{file}'; it must be a folder"),
        (link, f"AGX_HOME is '{link}'; it must be a folder"),
        (file / "a" / "b", f"AGX_HOME is '{file}/a/b'; it must be a folder, and '{file}' is not one"),
    ):
        with pytest.raises(SettingsError) as refused:
            load_settings(environ={"AGX_HOME": str(home)})
        assert str(refused.value) == sentence
    for home in (tmp_path, tmp_path / "a" / "b"):
        assert load_settings(environ={"AGX_HOME": str(home)}).home == home


def test_a_settings_file_cannot_set_the_home_folder(tmp_path: Path) -> None:
    write_settings(tmp_path, 'home = "/elsewhere"')
    with pytest.raises(SettingsError, match=r"'home' in .* may not be set here"):
        load_settings(environ={"AGX_HOME": str(tmp_path)})


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_settings(environ={}).model = "other"  # pyright: ignore[reportAttributeAccessIssue]


# --- prompts, keys and the environment of others ----------------------------------------------------------------------


def test_the_users_prompt_replaces_the_shipped_one(tmp_path: Path) -> None:
    ours = prompt_text("compaction", home=tmp_path)
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "compaction.md").write_text("Be brief.", encoding="utf-8")
    assert ours == (ROOT / "config" / "prompts" / "compaction.md").read_text(encoding="utf-8")
    assert prompt_text("compaction", home=tmp_path) == "Be brief."


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "a/b", "nope"])
def test_a_prompt_that_does_not_exist_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=re.escape(name)):
        prompt_text(name, home=tmp_path)


def test_a_blank_api_key_counts_as_unset() -> None:
    assert provider_key("OPENAI_API_KEY", environ={"OPENAI_API_KEY": " \n"}) is None
    assert provider_key("OPENAI_API_KEY", environ={"OPENAI_API_KEY": "sk-1\n"}) == "sk-1"


@pytest.mark.promise("I1")
def test_commands_of_the_agent_do_not_inherit_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "PGPASSWORD", "DB_PASSWORD", "MY_APIKEY"):
        monkeypatch.setenv(name, f"canary-of-{name}")
    monkeypatch.setenv("MONKEY", "banana")
    kept = child_environment({"AGX_CALL": "call_1"})
    assert [value for value in kept.values() if "canary" in value] == []
    assert (kept["MONKEY"], kept["AGX_CALL"], kept["PATH"]) == ("banana", "call_1", os.environ["PATH"])


_SECRET_VARIABLES = """
    OPENAI_API_KEY_WORK OPENAI_API_KEYS SSHPASS BORG_PASSPHRASE TOKEN_GITHUB DATABASE_URL REDIS_URL SENTRY_DSN
    AZURE_STORAGE_CONNECTION_STRING NPM_CONFIG__AUTH npm_config__authToken DOCKER_AUTH_CONFIG SLACK_WEBHOOK
    GOOGLE_APPLICATION_CREDENTIALS_JSON SLACK_WEBHOOK_URL MYSQL_PWD GH_PAT STRIPE_KEY_2 AGX_TOKEN_FILE SSH_AUTH_SOCK
"""
_SECRET_LOOKS = [
    "postgres://user:hunter2@db/x",
    "http://proxy-user:pw@proxy:3128",
    "redis://:hunter2@cache",
    "Server=db;User Id=a;Password=hunter2;",
    '{"type": "service_account", "private_key": "abcdef"}',
    "sk-proj-0123456789abcdefghij",
    "ghp_0123456789abcdefghijABCDEFGHIJ",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
    "-----BEGIN OPENSSH PRIVATE KEY-----",
    "https://hooks.slack.com/services/T0/B0/x",
    "Authorization: Bearer abcdefgh12345678",
    "prefix canary-of-a-key-1 suffix",
]
_ORDINARY_VARIABLES = {
    "PATH": "/usr/bin:/bin",
    "PWD": "/home/a",
    "OLDPWD": "/home",
    "HOME": "/home/a",
    "LANG": "C.UTF-8",
    "VIRTUAL_ENV": "/home/a/.venv",
    "XDG_SESSION_ID": "3",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/1000/bus",
    "GIT_AUTHOR_NAME": "A Person",
    "TOKENIZERS_PARALLELISM": "false",
    "KEYBOARD": "us",
    "SSL_CERT_FILE": "/etc/ssl/certs/ca.pem",
    "HTTP_PROXY": "http://proxy:3128",
    "PIP_INDEX_URL": "https://pypi.org/simple",
    "LS_COLORS": "rs=0:di=01;34:*.tar=01;31",
    "COMPASS": "north",
    "PYTHONHASHSEED": "0",
    "CXXFLAGS": "-O2 -DKEY=1",
}


@pytest.mark.promise("I1")
def test_commands_inherit_ordinary_variables_and_none_that_may_hold_a_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name in _SECRET_VARIABLES.split():
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("SOME_KEY", "canary-of-a-key-1")
    for number, value in enumerate(_SECRET_LOOKS):
        monkeypatch.setenv(f"HARMLESS_NAME_{number}", value)
    for name, value in _ORDINARY_VARIABLES.items():
        monkeypatch.setenv(name, value)
    kept = child_environment()
    kept.pop("PYTEST_CURRENT_TEST", None)
    assert kept == _ORDINARY_VARIABLES


def test_secret_values_are_those_of_variables_with_secret_names() -> None:
    environ = {
        "A_API_KEY": "long-enough-1",
        "B_TOKEN": "longer-than-that-2",
        "C_KEY": "short",
        "AGX_TOKEN_FILE": "/a/b/c/d",
        "AUTH_MODE": "disabled",
        "D_API_KEY_WORK": "canary-1",
        "DB_PASSWORD": "onlyletters",
        "OPENAI_API_KEY": "lm-studio",
        "OTHER_API_KEY": "not-needed",
    }
    assert secret_values(environ=environ) == ("longer-than-that-2", "long-enough-1", "onlyletters", "canary-1")


def test_loading_valid_settings_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    load_settings(environ={"AGX_MODEL": "demo"})
    assert caplog.records == []


def test_a_custom_token_file_key_and_store_are_as_private_as_the_home_folder(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert load_settings(environ={"AGX_HOME": str(home)}).private_paths == (home,)
    environ = {"AGX_HOME": str(home), "AGX_TOKEN_FILE": str(tmp_path / "token")}
    assert load_settings(environ=environ).private_paths == (home, tmp_path / "token")
    environ["AGX_SECRET_FILE"] = str(tmp_path / "key")
    assert load_settings(environ=environ).private_paths == (home, tmp_path / "token", tmp_path / "key")
    stored = load_settings(environ={"AGX_HOME": str(home), "AGX_STORE_URL": f"sqlite:///{tmp_path}/a.db"})
    assert {path.name for path in stored.private_paths} == {"home", "a.db", "a.db-wal", "a.db-shm", "a.db.owner"}
    for unusable in ("sqlite:////", "sqlite:///~nobody-here/a.db"):
        assert load_settings({"home": home, "store_url": unusable}, environ={}).private_paths == (home,)
