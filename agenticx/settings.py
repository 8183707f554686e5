"""Typed settings, and all input from the environment, the settings files and the config folder.

A setting is taken from the first source that has it: argument, `AGX_*` variable, project file
(`.agenticx/settings.toml` in the workspace), user file (`settings.toml` in AGX_HOME), the default in `Settings`. An
empty variable counts as unset, AGX_HOME too; for a number it is an error. The author of a project writes the project
file, so it may only set durations and amounts, never who is asked, what is allowed or where data is stored.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from agenticx.errors import SettingsError, error_text
from agenticx.home_permissions import check_home
from agenticx.private_files import read_regular_file
from agenticx.resource_exhaustion import raise_if_exhausted
from agenticx.secret_detection import is_real_key, is_secret_name, is_secret_value, is_secret_variable
from agenticx.setting_validators import (
    absolute_path,
    checked_store_url,
    clamped,
    folder_path,
    integer,
    list_of,
    number,
    one_of,
    read_toml,
    split_postgres_urls,
    switch,
)
from agenticx.similar_names import similar_names

__all__ = [
    "PROJECT_FILE",
    "PROJECT_SETTINGS",
    "ProviderVariables",
    "Settings",
    "child_environment",
    "config_folders",
    "config_layers",
    "config_text",
    "given_provider_variables",
    "home_folder",
    "load_settings",
    "prompt_text",
    "provider_key",
    "provider_setting",
    "provider_variables_key",
    "remember_secret",
    "secret_values",
    "using_provider_variables",
]

_FILE_NAME = "settings.toml"
PROJECT_FILE = Path(".agenticx") / _FILE_NAME
_PREFIX = "AGX_"
_MAX_FILE_BYTES = 256 * 1024
_MAX_CONFIG_BYTES = 16 * 1024 * 1024  # of a catalogue of models or a prompt: more than anybody writes
_MAX_SHOWN_CHARS = 200  # of a name or value from a file, in an error message

# `agenticx.logs` imports this module (it redacts `secret_values`), so this one uses the standard library's logging.
_log = logging.getLogger(__name__)


_Seconds = Annotated[float, number(0.05, 86_400)]
_Folder = Annotated[Path, AfterValidator(absolute_path)]

_PROJECT: dict[str, Any] = {"project": True}
"""The mark of a setting that a project file may set: a duration or an amount, never who is asked or what is allowed."""


class Settings(BaseModel):
    """All settings; seconds are decimals from 0.05 to 86400 unless stated otherwise, in no required order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    llm_invoke_timeout_seconds: _Seconds = Field(
        120, description="Longest wait for the first delta of a model call.", json_schema_extra=_PROJECT
    )
    llm_heartbeat_timeout_seconds: _Seconds = Field(
        60, description="Longest wait between two deltas with content.", json_schema_extra=_PROJECT
    )
    llm_hard_timeout_seconds: _Seconds = Field(
        300, description="Longest time for one model call, retries included.", json_schema_extra=_PROJECT
    )
    llm_first_feedback_seconds: _Seconds = Field(
        8, description="Silence after which a waiting notice is shown.", json_schema_extra=_PROJECT
    )
    llm_attempts: Annotated[int, integer(1, 10)] = Field(
        3, description="Attempts per model, retries included; before its first delta only."
    )
    llm_retry_after_ceiling_seconds: _Seconds = Field(
        60,
        description="Longest Retry-After of a provider that is waited for; with a longer one there is no retry.",
        json_schema_extra=_PROJECT,
    )
    max_tool_rounds: Annotated[int, clamped(10, 120, "max_tool_rounds")] = Field(
        30,
        description="Model calls with tools in one turn, 10 to 120 (unset: 10 in a bare AgentRuntime()); in a file also"
        " runtime.max_tool_rounds.",
        json_schema_extra=_PROJECT,
    )
    turn_timeout_seconds: Annotated[float, number(0.05, 86_400, allow_zero=True)] = Field(
        0, description="Longest time for a turn; 0 is off.", json_schema_extra=_PROJECT
    )
    on_exhausted: Annotated[Literal["error", "partial"], one_of("error", "partial")] = Field(
        "error",
        description="End of a turn that is out of rounds or time: an error, or a partial answer, for which the time"
        " limit starts again (error, partial).",
    )
    autonomous_agent_max_iterations: Annotated[int, integer(1, 120)] = Field(
        5,
        description="Most model calls of a turn whose message chose a mode for notes; then the turn answers with what"
        " it has found.",
    )
    autonomous_agent_enabled_tool_ids: Annotated[tuple[str, ...], list_of(r"[\w.-]+", "names of tools")] = Field(
        (), description="Tools of the session that a turn with a mode for notes may use; empty: all."
    )
    enable_inline_citations: Annotated[bool, switch()] = Field(
        True, description="Compare the citations of an answer with the notes that they name."
    )
    embedding_model: str | None = Field(
        None,
        description="Model that finds notes by meaning, such as ollama:nomic-embed-text (unset: notes are found by"
        " words); needs the extra embeddings.",
    )
    image_model: str | None = Field(
        None,
        description="Model that makes images, of a server with the Images API, such as openai:gpt-image-2 (unset: the"
        " tools for images are not offered).",
    )
    recent_conversations: Annotated[int, integer(0, 50)] = Field(
        0, description="Earlier sessions of the same workspace that the system prompt lists, by title and date."
    )
    status_query_budget_per_turn: Annotated[int, integer(0, 1000)] = Field(
        2, description="Most queries for states of sub-agents in one turn.", json_schema_extra=_PROJECT
    )
    status_query_cooldown_seconds: _Seconds = Field(
        8, description="Shortest time between two queries for states of sub-agents.", json_schema_extra=_PROJECT
    )
    subagent_max_depth: Annotated[int, integer(1, 100)] = Field(
        3, description="Most levels of sub-agents; a sub-agent of the main agent is at level 1."
    )
    subagent_max_children: Annotated[int, integer(1, 100_000)] = Field(
        8, description="Most sub-agents of one agent that have not ended."
    )
    subagent_max_running: Annotated[int, integer(1, 1000)] = Field(
        4, description="Most sub-agents of a session that work at once; others are queued."
    )
    subagent_max_total: Annotated[int, integer(1, 1_000_000)] = Field(
        2000,
        description="Most runs of sub-agents that one turn of the main agent starts, directly or through sub-agents.",
    )
    subagent_timeout_seconds: _Seconds = Field(
        1800,
        description="Longest time for a turn of a sub-agent; time spent waiting for a person does not count.",
        json_schema_extra=_PROJECT,
    )
    turn_budget_tokens: Annotated[int, integer(0, 1_000_000_000_000)] = Field(
        0, description="Most tokens of a turn of the main agent, including sub-agents and other child turns; 0 is off."
    )
    turn_budget_usd: Annotated[float, number(0.000_001, 1_000_000, allow_zero=True)] = Field(
        0,
        description="Highest cost of a turn of the main agent in US dollars, including sub-agents and other child"
        " turns, for known prices; 0 is off.",
    )
    tool_timeout_seconds: _Seconds = Field(
        120,
        description="Longest time for one tool call, unless the tool has its own limit.",
        json_schema_extra=_PROJECT,
    )
    confirm_timeout_seconds: _Seconds = Field(
        600, description="Time-out of a confirmation; then the call is denied.", json_schema_extra=_PROJECT
    )
    question_timeout_seconds: Annotated[float, number(1, 31_536_000)] = Field(
        604_800, description="Time-out of a question that an agent asks; 1 to 31536000.", json_schema_extra=_PROJECT
    )
    team_max_turns: Annotated[int, integer(1, 10_000)] = Field(
        100, description="Most turns of all agents of a team together; then the team ends.", json_schema_extra=_PROJECT
    )
    hook_timeout_seconds: _Seconds = Field(5, description="Longest time for one hook.", json_schema_extra=_PROJECT)
    compaction_threshold_messages: Annotated[int, integer(8, 100_000)] | None = Field(
        None,
        examples=[20],
        description="A history of more messages is compacted; unset: no limit in stored sessions, else 20.",
        json_schema_extra=_PROJECT,
    )
    compaction_threshold_chars: Annotated[int, integer(1_000, 100_000_000)] | None = Field(
        None,
        examples=[48_000],
        description="A history of more characters is compacted; unset: 48000, or no limit if the window is known.",
        json_schema_extra=_PROJECT,
    )
    compaction_retain_messages: Annotated[int, integer(4, 10_000)] = Field(
        8, description="Latest messages that compaction leaves unchanged.", json_schema_extra=_PROJECT
    )
    compaction_timeout_seconds: _Seconds = Field(
        60, description="Longest time for the summary of a compaction.", json_schema_extra=_PROJECT
    )
    tool_result_chars: Annotated[int, integer(200, 10_000_000)] = Field(
        30_000,
        description="Most characters of a tool result; a longer one keeps its head and its tail only.",
        json_schema_extra=_PROJECT,
    )
    prune_tool_result_chars: Annotated[int, integer(200, 10_000_000)] = Field(
        4_000,
        description="Most characters of a tool result from an earlier round, once the history is compacted.",
        json_schema_extra=_PROJECT,
    )
    xml_tools: Annotated[Literal["auto", "always"], one_of("auto", "always")] = Field(
        "auto",
        description="Tools in the prompt, for models without function calling (auto) or for every model (always).",
    )
    model: str | None = Field(
        None,
        description="Model of new sessions, provider:name; unset: first provider with a key, a local server or demo.",
    )
    fallback_models: Annotated[tuple[str, ...], list_of(r"[^\s,]+", "names of models")] = Field(
        (), description="Fallback models in order, used if the model fails before its first delta, but not after a 400."
    )
    permission_mode: Annotated[
        Literal["default", "accept_edits", "plan", "auto"], one_of("default", "accept_edits", "plan", "auto")
    ] = Field("default", description="Permission mode of new sessions (default, accept_edits, plan, auto).")
    sandbox: Annotated[Literal["auto", "off"], one_of("auto", "off")] = Field(
        "auto",
        description="Commands run in a sandbox where this machine has one (auto; `agx doctor` says), or never (off).",
    )
    sandbox_home_paths: Annotated[tuple[str, ...], list_of(r"[^\s,]+", "paths in the home folder")] = Field(
        (),
        description="Folders and files of the home folder that commands in the sandbox may read, in addition to the"
        " usual toolchains; for example go/sdk.",
    )
    enabled_tools: Annotated[tuple[str, ...], list_of(r"[\w.-]+", "names of tools")] | None = Field(
        None, description="Tools of new sessions; unset: all."
    )
    workspace_root: _Folder | None = Field(
        None, description="Workspace of new sessions in the studio; unset: the folder in which it was started."
    )
    shared_workspaces: _Folder | None = Field(
        None,
        description="Folder that all workers of a database have at the same path, such as on NFS: sessions whose"
        " workspace is in it run on each host, all others on the host where they were made.",
    )
    home: Annotated[_Folder, AfterValidator(folder_path)] = Field(
        Path("~/.agenticx"),
        validate_default=True,
        description="Folder of sessions, token and user settings, closed to file tools; set by the variable AGX_HOME"
        " only.",
    )
    store_url: Annotated[str, AfterValidator(checked_store_url)] | None = Field(
        None,
        repr=False,  # it may hold a password
        description="Database of sessions and events: sqlite:///PATH, or postgresql://USER@HOST/DATABASE, which needs"
        " the extra postgres (several, separated by spaces, share the sessions); unset: sessions.db in home.",
    )
    store_poll: Annotated[bool, switch()] = Field(
        False,
        description="Poll a PostgreSQL store for changes every 25 ms instead of using LISTEN, for example behind a"
        " pooler without LISTEN.",
    )
    store_timeout_seconds: _Seconds = Field(
        30, description="Longest wait for a PostgreSQL server; then the outcome of a commit is unknown."
    )
    store_lease_seconds: _Seconds = Field(
        10,
        description="Time without a heartbeat after which a worker of a PostgreSQL store loses its sessions.",
    )
    drain_seconds: Annotated[float, number(0, 86_400)] = Field(
        30,
        description="Time that a worker of a PostgreSQL store gives its running turns after SIGTERM; then it stops"
        " them. Other workers take its other sessions meanwhile.",
    )
    secret_file: _Folder | None = Field(
        None,
        description="File with the key that encrypts secrets in a PostgreSQL store, the same one for all workers;"
        " closed to file tools.",
    )
    resume_interrupted: Annotated[Literal["confirms", "off"], one_of("confirms", "off")] = Field(
        "confirms",
        description="Turns that continue after a restart: a turn that waits for the user's answer, unless a call that"
        " is not idempotent was running too (confirms), or none (off).",
    )
    token_file: _Folder | None = Field(
        None,
        description="File with the server's token, mode 0600, closed to file tools; unset: a file in home, created at"
        " the first start.",
    )
    allowed_origins: Annotated[tuple[str, ...], list_of(r"[\w+.-]+://[^\s/*]*|null", "exact origins")] = Field(
        (), description="Origins besides the page's own that may call the server, exactly as the browser sends them."
    )
    allowed_hosts: Annotated[tuple[str, ...], list_of(r"[\w.-]+(:\d+)?|\[[0-9a-fA-F:.]+\](:\d+)?", "host names")] = (
        Field((), description="Host names accepted if the server is bound to other than loopback addresses.")
    )
    preview_hosts: Annotated[
        tuple[str, ...],
        list_of(
            r"(https://)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:\d{1,5})?", "https hosts, such as cdn.example.com"
        ),
    ] = Field((), description="Hosts from which previews may load scripts, styles, images and fonts, over https.")
    log_level: Annotated[Literal["debug", "info", "warning", "error"], one_of("debug", "info", "warning", "error")] = (
        Field("info", description="Lowest level that is logged to stderr (debug, info, warning, error).")
    )

    _from_user_file: frozenset[str] = PrivateAttr(frozenset())
    """Names of settings that come from the user file: a project's file overrides them."""
    _without_workspace: Settings | None = PrivateAttr(None)
    """The settings before `in_workspace` applied a project file; None if it applied none."""
    _from_workspace: frozenset[str] = PrivateAttr(frozenset())
    """Names of settings that come from a project file."""

    def model_post_init(self, context: Any, /) -> None:
        self._from_user_file = context or frozenset()

    def in_workspace(self, workspace: Path) -> Settings:
        """Return these settings as they apply in `workspace`, whose settings file is read now.

        Values from another workspace's file are dropped, values from arguments and variables stay. Raises
        `SettingsError` for a file that cannot be used.
        """
        base = self._without_workspace or self
        file = workspace / PROJECT_FILE
        if _is_user_file(file, base.home / _FILE_NAME):
            return base
        overriding = base.model_fields_set - base._from_user_file
        given = {name: value for name, value in _from_file(file, PROJECT_SETTINGS).items() if name not in overriding}
        if not given:
            return base
        checked = _validated({"home": (base.home, "home"), **given})
        settings = base.model_copy(update={name: getattr(checked, name) for name in given})
        settings._without_workspace, settings._from_workspace = base, frozenset(given)
        return settings

    @property
    def from_workspace(self) -> Mapping[str, Any]:
        """The settings that `in_workspace` took from the file of the workspace, with their values."""
        return {name: getattr(self, name) for name in sorted(self._from_workspace)}

    @property
    def private_paths(self) -> tuple[Path, ...]:
        """The paths of AgenticX's own data, which agents may not access."""
        files = tuple(path for path in (self.token_file, self.secret_file) if path is not None)
        return (self.home, *files, *_database_files(self.store_url or ""))

    @property
    def postgres_urls(self) -> tuple[str, ...]:
        """The URLs of the PostgreSQL databases that are the store, in the order given; none for a SQLite store."""
        return split_postgres_urls(self.store_url or "")


def _database_files(url: str) -> tuple[Path, ...]:
    """Return the files of the SQLite database of an `AGX_STORE_URL`; empty for another URL and an unusable path."""
    if not url.startswith("sqlite:///"):
        return ()
    try:
        path = Path(url.removeprefix("sqlite:///")).expanduser()
        return tuple(path.with_name(f"{path.name}{suffix}") for suffix in ("", "-wal", "-shm", ".owner"))
    except (RuntimeError, ValueError):  # an unknown user's home; a path without a name
        return ()


_SIMILAR = 0.8  # the least similarity of a misspelt name, as in `difflib`
_NUMBERS = frozenset(
    name
    for name, field in Settings.model_fields.items()
    if type((field.examples or [field.default])[0]) in {int, float}
)
PROJECT_SETTINGS = frozenset(
    name for name, field in Settings.model_fields.items() if field.json_schema_extra == _PROJECT
)
"""Settings that a project file may set, each bounded by its range."""


# --- loading ----------------------------------------------------------------------------------------------------------


def load_settings(
    overrides: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    project: Path | None = None,
) -> Settings:
    """Return the settings in force; `project` is the workspace whose settings file applies, None for no project file.

    In `overrides` None means not given. An empty variable counts as unset, except for a number, where it is an error.
    Raises `SettingsError` that names the setting as it was written, its value and the accepted values, and as
    `check_home` does.
    """
    environ = os.environ if environ is None else environ
    arguments = {name: (value, name) for name, value in (overrides or {}).items() if value is not None}
    variables = _from_variables(environ)
    home, where = arguments.get("home") or variables.get("home") or (Settings.model_fields["home"].default, "home")
    try:
        user_file = absolute_path(Path(home)) / _FILE_NAME
    except ValueError as exc:
        raise SettingsError(f"{where} is {str(home)!r}; it {exc}") from None
    check_home(user_file.parent)
    from_file, overriding = _from_file(user_file, _USER_SETTINGS), variables | arguments
    settings = _validated(from_file | overriding, from_user_file=frozenset(from_file.keys() - overriding.keys()))
    return settings if project is None else settings.in_workspace(project)


def _validated(given: _GivenSettings, from_user_file: frozenset[str] = frozenset()) -> Settings:
    try:
        return Settings.model_validate({name: value for name, (value, _) in given.items()}, context=from_user_file)
    except ValidationError as exc:
        where = {name: where for name, (_, where) in given.items()}
        raise SettingsError("; ".join(_error_messages(exc, where))) from None


def _is_user_file(path: Path, user_file: Path) -> bool:
    """Return whether a project's file is the user's own file.

    It is if the project is the parent of AGX_HOME or of the default home.
    """
    default_file = absolute_path(Settings.model_fields["home"].default) / _FILE_NAME
    # `realpath` does not raise, not even for circular symbolic links.
    return os.path.realpath(path) in (os.path.realpath(user_file), os.path.realpath(default_file))


_GivenSettings = dict[str, tuple[Any, str]]
"""Settings by name: the value, and the name under which it was written, for error messages."""

_USER_SETTINGS = frozenset(Settings.model_fields) - {"home"}


def _from_variables(environ: Mapping[str, str]) -> _GivenSettings:
    given: _GivenSettings = {}
    for variable in [name for name in environ if name.startswith(_PREFIX)]:
        name = variable.removeprefix(_PREFIX).lower()
        if name not in Settings.model_fields:
            _warn_if_misspelt(variable)
        elif environ[variable].strip() or name in _NUMBERS:
            given[name] = (environ[variable], variable)
    return given


def _warn_if_misspelt(variable: str) -> None:
    """Log a warning if `variable` is almost the name of a setting."""
    variables = [_PREFIX + name.upper() for name in Settings.model_fields]
    for similar in similar_names(variable, variables, number=1, cutoff=_SIMILAR):
        _log.warning("%s is not a setting and has no effect; did you mean %s?", variable, similar)


def _from_file(path: Path, allowed: frozenset[str]) -> _GivenSettings:
    """Return the settings of a file; empty if nothing has its name."""
    try:
        content = read_regular_file(path, _MAX_FILE_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as exc:
        raise_if_exhausted(exc)
        shown = _unreadable_part(path) if isinstance(exc, PermissionError) else path
        raise SettingsError(f"{shown} cannot be read: {error_text(exc)}") from exc
    try:
        values = read_toml(content.decode())
    except ValueError as exc:
        raise SettingsError(f"{path} is not TOML: {exc}") from exc
    runtime = _runtime_table(values, path) if "runtime" in values else {}
    for name in values:
        if name not in allowed:
            reason = "may not be set here" if name in Settings.model_fields else "is not a setting"
            close = () if name in Settings.model_fields else similar_names(name, allowed, number=1, cutoff=_SIMILAR)
            right = f"did you mean {close[0]!r}?" if close else "remove it from that file"
            raise SettingsError(f"{_shortened_repr(name)} in {path} {reason}; {right}")
    return {name: (value, f"{name} in {path}") for name, value in values.items()} | runtime


def _unreadable_part(path: Path) -> Path:
    """Return the first folder on the way to a file that may not be entered, else the file."""
    return next((folder for folder in reversed(path.parents) if not os.access(folder, os.X_OK)), path)


def _runtime_table(values: dict[str, Any], path: Path) -> _GivenSettings:
    """Remove `runtime.max_tool_rounds`, an alias of `max_tool_rounds`, from `values` and return it.

    Raises `SettingsError`.
    """
    table, name = values.pop("runtime"), "max_tool_rounds"
    given = cast(dict[str, Any], table) if isinstance(table, dict) else {}
    unknown = [f"runtime.{other}" for other in given if other != name] if isinstance(table, dict) else ["runtime"]
    if unknown:
        raise SettingsError(
            f"{_shortened_repr(unknown[0])} in {path} is not a setting; the only one in that table is runtime.{name}"
        )
    if name in values and given.get(name, values[name]) != values[name]:
        raise SettingsError(
            f"runtime.{name} in {path} is {_shortened_repr(given[name])} and {name} is {_shortened_repr(values[name])};"
            " they are the same setting, so leave one of them out"
        )
    return {name: (given[name], f"runtime.{name} in {path}")} if given else {}


def _error_messages(exc: ValidationError, where: Mapping[str, str]) -> list[str]:
    sentences: list[str] = []
    for error in exc.errors(include_url=False):
        name = str(error["loc"][0]) if error["loc"] else "settings"
        if error["type"] == "extra_forbidden":
            sentences.append(f"{name!r} is not a setting; settings are: {', '.join(sorted(Settings.model_fields))}")
            continue
        expectation = error["msg"].removeprefix("Value error, ")
        value = (
            "not usable" if name == "store_url" else _shortened_repr(error["input"])
        )  # its value may hold a password
        sentences.append(f"{where.get(name, name)} is {value}; it {expectation[:1].lower()}{expectation[1:]}")
    return sentences


def _shortened_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[: _MAX_SHOWN_CHARS - 1]}…"


# --- secrets and the environment of child processes -------------------------------------------------------------------

_MIN_SECRET_CHARS = 8

_MAX_REMEMBERED = 256
ProviderVariables = tuple[tuple[str, str], ...]
"""Variables of providers with their values, ordered by name."""

_provider_variables: ContextVar[Mapping[str, str]] = ContextVar("agenticx_provider_variables", default={})  # noqa: B039
_remembered: dict[str, None] = {}  # global like the environment; in the order in which they were remembered


def remember_secret(value: str) -> None:
    """Add a value to `secret_values`; the latest 256 are kept."""
    if is_real_key(value):
        _remembered.pop(value, None)
        _remembered[value] = None
        for oldest in list(_remembered)[:-_MAX_REMEMBERED]:
            _remembered.pop(oldest, None)


def provider_key(name: str, *, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the key in the provider's usual variable, such as OPENAI_API_KEY; None when unset or blank."""
    return provider_setting(name, environ=environ)


def provider_setting(name: str, *, environ: Mapping[str, str] | None = None) -> str | None:
    """Return a provider's own variable, such as OPENAI_BASE_URL; None when unset or blank.

    Without `environ` it is a variable of this process, or one given to `using_provider_variables`.
    """
    if environ is None:
        environ = given if name in (given := _provider_variables.get()) else os.environ
    return environ.get(name, "").strip() or None


@contextmanager
def using_provider_variables(variables: Mapping[str, str]) -> Generator[None]:
    """Use these variables of providers in place of this process's own in the block, and in tasks that begin there.

    An empty value is that of a variable that is not set.
    """
    token = _provider_variables.set(variables)
    try:
        yield
    finally:
        _provider_variables.reset(token)


def given_provider_variables() -> Mapping[str, str]:
    """Return the variables that `using_provider_variables` was called with; {} outside of it."""
    return _provider_variables.get()


def provider_variables_key() -> ProviderVariables:
    """Return `given_provider_variables` as the key of a cache: what is made with them is for the same ones only."""
    return tuple(sorted(given_provider_variables().items()))


def secret_values(*, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the values of variables with secret names, longest first; they must not be shown.

    Without `environ` it reads the variables of this process and adds the values given to `remember_secret`. Another
    thread may change the environment meanwhile.
    """
    remembered = list(_remembered) if environ is None else []
    environ = os.environ if environ is None else environ
    pairs = [(name, environ.get(name, "").strip()) for name in list(environ)]
    values = {value for name, value in pairs if is_secret_variable(name, value)}.union(remembered)
    return tuple(sorted((value for value in values if len(value) >= _MIN_SECRET_CHARS), key=len, reverse=True))


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for an agent's command: ours without variables that hold secrets, plus `extra`.

    A variable holds a secret if its name or value looks like one, or if its value contains the value of such a
    variable.
    """
    secrets = secret_values()
    kept = {
        name: value
        for name, value in os.environ.items()
        if not (is_secret_name(name) or is_secret_value(value) or any(secret in value for secret in secrets))
    }
    return {**kept, **(extra or {})}


# --- the config folder ------------------------------------------------------------------------------------------------


def config_text(name: str, *, home: Path | None = None) -> str:
    """Return the text of a file of the config folder, such as `models.toml`.

    A file of the same name in `home` (default: AGX_HOME) takes precedence. Raises `SettingsError`.
    """
    folders = (home or home_folder(), *config_folders())
    check_home(folders[0])
    for path in (folder / name for folder in folders):
        if (text := _config_file(path)) is not None:
            return text
    raise SettingsError(f"{name!r} is in none of: {', '.join(map(str, folders))}")


def config_layers(name: str, *, home: Path | None = None) -> Iterator[tuple[Path, str]]:
    """Yield path and text of the shipped file `name`, then of the user's file `name` in `home` (default: AGX_HOME).

    A file that does not exist is skipped.
    """
    shipped = next((folder / name for folder in config_folders() if (folder / name).is_file()), None)
    home = home or home_folder()
    check_home(home)
    for path in (shipped, home / name):
        if path is not None and path.parent.is_dir() and (text := _config_file(path)) is not None:
            yield path, text


def _config_file(path: Path) -> str | None:
    """Return the text of a file, None if nothing has its name; raise `SettingsError` if it cannot be read."""
    try:
        return read_regular_file(path, _MAX_CONFIG_BYTES).decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise_if_exhausted(exc)
        raise SettingsError(f"{path} cannot be read: {error_text(exc)}") from exc


def prompt_text(name: str, *, home: Path | None = None) -> str:
    """Return the text of `prompts/{name}.md`: the user's own in AGX_HOME, else the shipped one."""
    if not re.fullmatch(r"[a-z0-9_-]+", name):
        raise SettingsError(
            f"{name!r} is not the name of a prompt; names consist of lower-case letters, digits, _ and -"
        )
    return config_text(f"prompts/{name}.md", home=home)


def home_folder() -> Path:
    """Return AGX_HOME, the folder of settings, models and keys."""
    return absolute_path(Path(provider_setting("AGX_HOME") or Settings.model_fields["home"].default))


def config_folders() -> tuple[Path, Path]:
    """Return the possible config folders: in an installed wheel, in a checkout."""
    package = Path(__file__).parent
    return package / "_config", package.parent / "config"
