"""Logging: structured lines with the ids of session, turn and agent, redacted.

`get_logger` costs nothing: structlog is imported when the first line is written (it takes 0.1 s).
Lines are passed to the standard library's `logging`, so an application that embeds AgenticX keeps its own
configuration; `configure_logging` is for our own programs, logs to stderr and also redacts the lines of other
libraries. A line of ours is rendered (`LogLine`) by the handler that writes it, which may be in another thread.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import threading
from collections.abc import Callable, Generator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, cast

from agenticx.log_colors import ColoredFormatter
from agenticx.settings import secret_values

__all__ = [
    "HIDDEN",
    "Level",
    "LogLine",
    "Logger",
    "bind_ids",
    "bound_ids",
    "configure_logging",
    "excerpt",
    "get_logger",
    "hidden_members",
    "is_secret_field",
    "redact",
]

Level = Literal["debug", "info", "warning", "error"]

HIDDEN = "[hidden]"
"""The replacement for a secret."""

_MAX_FIELD_CHARS = 2_000
_MAX_LINE_CHARS = 40_000
_SPLIT_SECRET_CHARS = 1_024
_NO_IDS: Mapping[str, str] = MappingProxyType({})
_ids: ContextVar[Mapping[str, str]] = ContextVar("agenticx_log_ids", default=_NO_IDS)


@dataclass(frozen=True, slots=True)
class Logger:
    """A logger that creates its structlog logger when its first line is written.

    An event is a short sentence without values; values are passed as fields: `log.warning("hook failed", hook=name)`.
    """

    name: str
    fields: Mapping[str, object] = field(default_factory=dict[str, object])

    def bind(self, **fields: object) -> Logger:
        """Return the same logger with more fields on each line."""
        return Logger(self.name, {**self.fields, **fields})

    def is_enabled(self, level: Level) -> bool:
        """Return whether lines of this level are written: check it before computing expensive fields."""
        return logging.getLogger(self.name).isEnabledFor(getattr(logging, level.upper()))

    def debug(self, event: str, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """Log an error with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, event, {**fields, "exc_info": True})

    def _write(self, level: int, event: str, fields: Mapping[str, object]) -> None:
        if not logging.getLogger(self.name).isEnabledFor(level):
            return
        structured = _structlog_logger(self.name)
        if structured is None:
            _write_without_structlog(self.name, level, {"event": event, **self.fields, **fields})
        else:
            structured.log(level, event, **{**self.fields, **fields})


def get_logger(name: str) -> Logger:
    """Return the logger of a module; pass `__name__`."""
    return Logger(name)


@contextmanager
def bound_ids(
    *, session: str | None = None, turn: str | None = None, agent: str | None = None, organization: str | None = None
) -> Generator[None]:
    """Put these ids on every line written inside the block, also by tasks started in it."""
    before = _ids.get()
    ids = {"session": session, "turn": turn, "agent": agent, "organization": organization}
    bind_ids(**{name: value for name, value in ids.items() if value})
    try:
        yield
    finally:
        _ids.set(before)  # not reset(token): a generator may be closed in another context than it was started in


def bind_ids(**ids: str | None) -> None:
    """Put these ids on every later line of the current task, also of tasks that it starts; None takes one off."""
    _ids.set({name: value for name, value in {**_ids.get(), **ids}.items() if value is not None})


def configure_logging(level: Level = "info", handler: logging.Handler | None = None) -> None:
    """Log lines of `level` and above, of other libraries of warning and above.

    At debug some libraries log whole events and requests. Lines are written by `handler`, which gets our formatter;
    without one they are written to stderr at once. They are coloured if stderr is a terminal.
    """
    root, ours = logging.getLogger(), (_RedactingFormatter, ColoredFormatter)
    for before in [before for before in root.handlers if isinstance(before.formatter, ours)]:
        root.removeHandler(before)
    handler = handler or logging.StreamHandler(sys.stderr)
    formatter = _RedactingFormatter("%(asctime)s %(levelname)-7s %(name)s %(message)s")
    stderr = sys.stderr
    if stderr is not None and stderr.isatty():
        handler.setFormatter(ColoredFormatter(formatter, stderr))
    else:
        handler.setFormatter(formatter)
    root.addHandler(handler)
    level_number = getattr(logging, level.upper())
    root.setLevel(max(level_number, logging.WARNING))
    for logger_name in ("agenticx", "studio"):
        logging.getLogger(logger_name).setLevel(level_number)


# --- secrets ----------------------------------------------------------------------------------------------------------

_SECRET_PATTERNS = re.compile(
    r"""
      \b(?:sk|pk|rk|gsk|hf|xai|pplx|nvapi|glpat|npm|pypi)[-_][A-Za-z0-9_-]{12,}   # provider keys
    | (?<=_)(?:sk|pk|rk|gsk|hf|xai|pplx|nvapi|glpat|npm|pypi)(?:-|_(?=[A-Za-z_-]{0,40}[0-9]))[A-Za-z0-9_-]{12,}
    | (?<![A-Za-z0-9])(?:
        (?:gh[oprsu]_|github_pat_)[A-Za-z0-9_]{20,}
      | (?:AKIA|ASIA)[0-9A-Z]{16}\b | AIza[A-Za-z0-9_-]{30,} | (?:xox[abeprs]|xapp)-[A-Za-z0-9-]{10,}
      | (?:do[opr]_v1|shp(?:at|ca|pa|ss)|ntn|figd|tvly|lin_api|dckr_pat|whsec|r8)[-_][A-Za-z0-9_-]{16,}
      | (?:dapi|SK|key-)[0-9a-f]{32}\b                                            # Databricks, Twilio, Mailgun
      | (?:hv[bsr]\.|ya29\.|1//0|AGE-SECRET-KEY-1)[A-Za-z0-9_-]{20,}
      | SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,}                              # SendGrid
      | [0-9]{8,10}:AA[A-Za-z0-9_-]{30,}                                          # Telegram
      | [MNO][A-Za-z0-9_-]{22,28}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}           # Discord
      )
    | (?<=hooks\.slack\.com/services/)[A-Za-z0-9/]+ | (?<=/api/webhooks/)[0-9]+/[A-Za-z0-9_-]+
    | (?<=://)[A-Za-z0-9_-]{20,256}(?=@)                                          # a token as the user of a URL
    | (?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]++\.)[A-Za-z0-9_-]*?(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}+\.
      [A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*|\Z)                                   # JSON web tokens
    | -----BEGIN[ A-Z]*PRIVATE\ KEY(?:\ BLOCK)?-----.*?(?:-----END[ A-Z]*PRIVATE\ KEY(?:\ BLOCK)?-----|\Z)
    """,
    re.VERBOSE | re.DOTALL,
)
_PASSWORD_NAMES = r"""
    (?:pg)?passwords?|passwd|(?:mysql_)?pwd|pw|pin|passphrase|passwort|kennwort|geheimwort|contrase[nñ]a|密码|密碼|
    mot_de_passe|(?:client_)?secret|(?:access_|auth_|refresh_|id_)?token|api_?key|
    (?:secret|account|private|signing|shared_?access|secret_?access)_?key
"""
_LABELLED_SECRETS = re.compile(
    rf"""
      (?P<bearer>\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{{8,}}
    | (?P<cookie>\b(?:set-)?cookie['"]?\s*[:=,]\s*b?['"]?)(?!\[hidden)[^\s'",][^'"\r\n]{{3,}}
    | (?P<header>\b(?:authorization|x-api-key|api-key|x-goog-api-key)['"]?\s*[:=,]\s*b?['"]?(?:token\s+)?)
      (?!Bearer|Basic|\[hidden)[^\s'",;]{{4,}}
    | (?P<query>[?&\#](?:api_?key|key|(?:access_|refresh_|id_)?token|ticket|password|(?:client_)?secret|code|sig|
      X-(?:Amz|Goog)-(?:Signature|Credential|Security-Token))=)(?!\[hidden)[^&\s'"]+
    | (?P<named>(?<![A-Za-z0-9])(?:{_PASSWORD_NAMES})(?:['"]?\s*=\s*['"]?|['"]\s*:\s*['"]?|
      :?[ \t]+(?=[^\s0-9]{{0,100}}[0-9])(?=[^\s'",;=:&]{{8,}}(?![^\s'",;]))))             # as in YAML and .netrc
      (?!\[hidden)[^\s'"&,;]{{3,}}
    | (?P<docker>['"]auth['"]\s*:\s*['"])[A-Za-z0-9+/=]{{12,}}
    | (?P<curl>(?<=\s)(?:-u|--user)[ \t=]+['"]?[^\s:'"]{{1,100}}:)[^\s'"]+
    | (?P<login>(?<=[a-z0-9+.-])://[^\s/:@'"]*+:)[^\s/@'"]++(?=@)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_SECRET_FIELD = re.compile(
    r"(?:^|[_\-.])(?:(?:api)?keys?|token|secrets?|passwords?|passwd|authorization|cookies?|ticket|credentials?|"
    r"pwd?|pin|passphrases?|passwort|passwörter|kennwort|geheimwort|contrase(?:n|ñ|n\u0303)as?|mots?[_-]?de[_-]?passe)$"
    r"|密码|密碼|口令",
    re.IGNORECASE,
)

_SECRET_FIELD_CHARS = 64
"""Characters searched at the end of a name; none of these words is longer."""


def redact(text: str) -> str:
    """Return `text` with `HIDDEN` in place of the values of secret variables and of all keys, tokens and logins.

    Keys, tokens and logins are recognised by patterns. Linear in the length of `text`.
    """
    return _redact(text, secret_values())


def _redact(text: str, secrets: Sequence[str]) -> str:
    for value in secrets:
        text = text.replace(value, HIDDEN)
    text = _SECRET_PATTERNS.sub(HIDDEN, text)
    return _LABELLED_SECRETS.sub(lambda match: f"{match[match.lastgroup or 0]}{HIDDEN}", text)


def excerpt(text: str, limit: int) -> str:
    """Return the redacted beginning of `text`, about `limit` characters; a longer text is followed by its length.

    The cost depends on `limit` alone. Cutting first could leave the first half of a secret at the end, where no pattern
    recognises it. Therefore more than `limit` is redacted, and the end of that, which may hold half a secret, is
    dropped.
    """
    return _excerpt(text, limit, secret_values())


def _excerpt(text: str, limit: int, secrets: Sequence[str]) -> str:
    if len(text) <= limit:
        return _redact(text, secrets)
    margin = max([_SPLIT_SECRET_CHARS, *map(len, secrets)])
    read = limit + 2 * margin
    shown = _redact(text[:read], secrets)
    if len(text) > read:
        shown = shown[:-margin]
    return f"{shown[:limit]}… ({len(text)} characters)"


def _redact_value(value: object, secrets: Sequence[str]) -> object:
    """Redact a structured value, in which a field's name can also mark its value as secret."""
    match value:
        case str():
            return _excerpt(value, _MAX_FIELD_CHARS, secrets)
        case Mapping():
            members = cast("Mapping[object, object]", value)
            hidden = hidden_members(members)
            return {
                name: HIDDEN if hidden(name) and inner else _redact_value(inner, secrets)
                for name, inner in members.items()
            }
        case list() | tuple():
            entries = cast("Sequence[object]", value)
            named = [False, *map(is_secret_field, entries)]
            return [
                HIDDEN if after and inner else _redact_value(inner, secrets)
                for after, inner in zip(named, entries, strict=False)
            ]
        case set() | frozenset():
            return [_redact_value(inner, secrets) for inner in cast("set[object]", value)]
        case None | bool() | int() | float():
            return value
        case _:
            return _excerpt(str(value), _MAX_FIELD_CHARS, secrets)


def is_secret_field(name: object) -> bool:
    """Return whether a field of that name is redacted for any value."""
    return isinstance(name, str) and _SECRET_FIELD.search(name[-_SECRET_FIELD_CHARS:]) is not None


_NAME_KEYS = ("name", "key", "header", "field", "Name", "Key", "Header", "Field")
_FIELD_NAME = re.compile(r"[\w.-]{1,64}")
_VALUE_KEYS = frozenset({"value", "values", "val", "v", "content", "data", "text"})


def hidden_members(
    members: Mapping[Any, object], is_secret: Callable[[object], bool] = is_secret_field
) -> Callable[[object], bool]:
    """Return a predicate: which members of an object to redact, by their names or by the name that the object states.

    In `{"name": "Authorization", "value": "…"}` that is the value.
    """
    stated_names = (members.get(naming) for naming in _NAME_KEYS)
    states_secret = any(
        isinstance(name, str) and _FIELD_NAME.fullmatch(name) and is_secret(name) for name in stated_names
    )
    return lambda name: is_secret(name) or (states_secret and isinstance(name, str) and name.lower() in _VALUE_KEYS)


class _RedactingFormatter(logging.Formatter):
    """A formatter that redacts each complete line, tracebacks and lines of other libraries included."""

    def format(self, record: logging.LogRecord) -> str:
        return excerpt(super().format(record), _MAX_LINE_CHARS)


# --- lines ------------------------------------------------------------------------------------------------------------

_IMMUTABLE_TYPES = frozenset({str, int, float, bool, type(None)})


class LogLine:
    """The message of one of our lines: `event field='value' …`, redacted and rendered when it is first needed.

    Values are quoted as `repr` does, so that none can begin a line of its own. A line with a value that may change
    later, or whose `__str__` is user code, is rendered at once.
    """

    __slots__ = ("_fields", "_text", "length")

    def __init__(self, fields: Mapping[str, object]) -> None:
        """Take ownership of `fields`, which include "event"."""
        self._fields = fields
        self._text: str | None = None
        if _IMMUTABLE_TYPES.issuperset(map(type, fields.values())):
            self.length = sum(len(value) for value in fields.values() if type(value) is str)
            """The approximate number of characters that the line keeps in memory."""
        else:
            self.length = len(str(self))

    def __str__(self) -> str:
        if self._text is None:
            fields = cast("dict[str, object]", _redact_value(self._fields, secret_values()))
            event = str(fields.pop("event", ""))
            words = [f"{name}={value!r}" for name, value in fields.items()]
            self._text = " ".join([event if event.isprintable() else repr(event), *words])
        return self._text


# --- structlog --------------------------------------------------------------------------------------------------------


_LOGGING_OPTIONS = ("exc_info", "stack_info", "stacklevel")


def _is_on_event_loop() -> bool:
    """Return whether an event loop runs in this thread, which the import of structlog would block for 0.1 s or more."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_importing = threading.Lock()
_loggers: dict[str, Any] = {}


def _structlog_logger(name: str) -> Any:
    """Return the logger of structlog, which is imported only here, as that takes longer than a turn.

    None on an event loop before that, and with too few file descriptors for it. So it is while
    another thread imports it: one that waits for that gets a part of the module if it fails.
    """
    if name in _loggers:
        return _loggers[name]
    if ("structlog" not in sys.modules and _is_on_event_loop()) or not _importing.acquire(blocking=False):
        return None
    try:
        import structlog

        _loggers[name] = structlog.wrap_logger(
            logging.getLogger(name),
            processors=[_with_ids, _as_line],
            wrapper_class=structlog.stdlib.BoundLogger,
            cache_logger_on_first_use=True,
        )
    except OSError:
        return None
    finally:
        _importing.release()
    return _loggers[name]


def _write_without_structlog(name: str, level: int, fields: dict[str, Any]) -> None:
    """Write the same line that structlog would write, without importing it."""
    arguments, options = _as_line(None, "", _with_ids(None, "", fields))
    logging.getLogger(name).log(level, *arguments, **options)


def _with_ids(_logger: object, _method: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {**_ids.get(), **fields}


def _as_line(
    _logger: object, _method: str, fields: MutableMapping[str, Any]
) -> tuple[tuple[str, LogLine], dict[str, Any]]:
    """Return the arguments for the standard library's logger, which renders the line only if a handler writes it."""
    options = {name: fields.pop(name) for name in _LOGGING_OPTIONS if name in fields}
    return ("%s", LogLine(fields)), options
