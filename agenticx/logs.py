"""Logging: structured lines with the ids of session, turn and agent, to stderr, without secrets.

`get_logger` costs nothing: structlog is imported when the first line is really written (it takes 0.1 s).
Lines end up in the standard library's `logging`, so an application that embeds us keeps its own set-up;
ours (`configure_logging`) is for our programs and also hides secrets in the lines of other libraries.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Generator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, cast

from agenticx.settings import secret_values

__all__ = ["Logger", "bound_ids", "configure_logging", "get_logger", "redact"]

_HIDDEN = "[hidden]"
_NO_IDS: Mapping[str, str] = MappingProxyType({})
_ids: ContextVar[Mapping[str, str]] = ContextVar("agenticx_log_ids", default=_NO_IDS)


@dataclass(frozen=True, slots=True)
class Logger:
    """A structlog logger that is made when its first line is written.

    An event is a short sentence without values; values come as fields: `log.warning("hook failed", hook=name)`.
    """

    name: str
    fields: Mapping[str, object] = field(default_factory=dict[str, object])

    def bind(self, **fields: object) -> Logger:
        """The same logger with more fields on each line."""
        return Logger(self.name, {**self.fields, **fields})

    def debug(self, event: str, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """An error with the traceback of the exception being handled."""
        self._write(logging.ERROR, event, {**fields, "exc_info": True})

    def _write(self, level: int, event: str, fields: Mapping[str, object]) -> None:
        if not logging.getLogger(self.name).isEnabledFor(level):
            return
        try:
            structured = _structured(self.name)
        except (OSError, MemoryError):  # too few files or too little memory to load structlog: a line must not fail
            _write_directly(self.name, level, {"event": event, **self.fields, **fields})
        else:
            structured.log(level, event, **{**self.fields, **fields})


def get_logger(name: str) -> Logger:
    """The logger of a module; pass `__name__`."""
    return Logger(name)


@contextmanager
def bound_ids(*, session: str | None = None, turn: str | None = None, agent: str | None = None) -> Generator[None]:
    """Put these ids on every line written inside the block, also by tasks started in it."""
    before = _ids.get()
    given = {name: value for name, value in (("session", session), ("turn", turn), ("agent", agent)) if value}
    _ids.set({**before, **given})
    try:
        yield
    finally:
        _ids.set(before)  # not reset(token): a generator may be closed in another context than it was started in


def configure_logging(level: Literal["debug", "info", "warning", "error"] = "info") -> None:
    """Log to stderr from `level` on; other libraries from warning on, unless `level` is debug."""
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler.formatter, _RedactingFormatter)]:
        root.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_RedactingFormatter("%(asctime)s %(levelname)-7s %(name)s %(message)s"))
    root.addHandler(handler)
    wanted = getattr(logging, level.upper())
    root.setLevel(wanted if level == "debug" else max(wanted, logging.WARNING))
    for ours in ("agenticx", "studio"):
        logging.getLogger(ours).setLevel(wanted)


# --- secrets ----------------------------------------------------------------------------------------------------------

_SHAPES = re.compile(
    r"""
      \b(?:sk|pk|rk|gsk|hf|xai|pplx|nvapi|glpat|npm|pypi)[-_][A-Za-z0-9_-]{12,}   # provider keys
    | \b(?:gh[oprsu]_|github_pat_)[A-Za-z0-9_]{20,}
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b | \bAIza[A-Za-z0-9_-]{30,} | \bxox[abeprs]-[A-Za-z0-9-]{10,}
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*                   # JSON web tokens
    | -----BEGIN[ A-Z]*PRIVATE\ KEY-----.*?(?:-----END[ A-Z]*PRIVATE\ KEY-----|\Z)
    """,
    re.VERBOSE | re.DOTALL,
)
_AFTER = re.compile(
    r"""
      (?P<bearer>\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{8,}
    | (?P<header>\b(?:authorization|x-api-key|api-key|x-goog-api-key|cookie|set-cookie)['"]?\s*[:=,]\s*b?['"]?)
      (?!Bearer|Basic|\[hidden)[^\s'",;]{4,}
    | (?P<query>[?&#](?:api_?key|key|token|access_token|ticket|password|secret)=)[^&\s'"]+
    | (?P<login>\b[a-z][a-z0-9+.-]*://[^\s/:@'"]*:)[^\s/@'"]+(?=@)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_SECRET_FIELD = re.compile(
    r"(?:^|[_\-.])(?:(?:api)?keys?|token|secrets?|passwords?|passwd|authorization|cookies?|ticket|credentials?)$",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """`text` without the values of secret variables and without what has the shape of a key, token or login."""
    for value in secret_values():
        text = text.replace(value, _HIDDEN)
    text = _SHAPES.sub(_HIDDEN, text)
    return _AFTER.sub(lambda match: f"{match[match.lastgroup or 0]}{_HIDDEN}", text)


def _redacted(value: object) -> object:
    """The same for structured values, where a field's name can also say that its value is secret."""
    match value:
        case str():
            return redact(value)
        case Mapping():
            pairs = cast("Mapping[object, object]", value).items()
            return {name: _HIDDEN if _is_secret(name) and inner else _redacted(inner) for name, inner in pairs}
        case list() | tuple() | set() | frozenset():
            return [_redacted(inner) for inner in cast("list[object]", value)]
        case None | bool() | int() | float():
            return value
        case _:
            return redact(str(value))


def _is_secret(name: object) -> bool:
    return isinstance(name, str) and _SECRET_FIELD.search(name) is not None


class _RedactingFormatter(logging.Formatter):
    """The last look at a line, whoever wrote it; tracebacks included."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


# --- structlog --------------------------------------------------------------------------------------------------------


_LOGGING_OWN = ("exc_info", "stack_info", "stacklevel")


@cache
def _structured(name: str) -> Any:
    import structlog  # here and nowhere else: importing it costs more than a turn

    return structlog.wrap_logger(
        logging.getLogger(name),
        processors=[_with_ids, _without_secrets, _as_line],
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def _write_directly(name: str, level: int, fields: dict[str, Any]) -> None:
    """Write the very line that structlog would write, without it."""
    words, own = _as_line(None, "", _without_secrets(None, "", _with_ids(None, "", fields)))
    logging.getLogger(name).log(level, *words, **own)


def _with_ids(_logger: object, _method: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {**_ids.get(), **fields}


def _without_secrets(_logger: object, _method: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    ours = {name: value for name, value in fields.items() if name not in _LOGGING_OWN}
    return {**fields, **cast("dict[str, Any]", _redacted(ours))}


def _as_line(_logger: object, _method: str, fields: MutableMapping[str, Any]) -> tuple[tuple[str, str], dict[str, Any]]:
    """`event field='value' …`; values are quoted as Python does, so that none can begin a line of its own."""
    own = {name: fields.pop(name) for name in _LOGGING_OWN if name in fields}
    event = str(fields.pop("event", ""))
    words = [event if event.isprintable() else repr(event), *(f"{name}={value!r}" for name, value in fields.items())]
    return ("%s", " ".join(words)), own
