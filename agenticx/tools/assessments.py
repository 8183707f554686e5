"""The check of an assessment that a tool's own code returned, and of the files that it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

from agenticx.errors import ToolError
from agenticx.tools.base import Assessment, Risk, ShellCommand, UserQuestion
from agenticx.tools.protected import protected_part, protection_reason

__all__ = ["checked_assessment"]

_TEXTS = ("question", "command", "path", "diff", "server")
_FLAGS = (
    "protected",
    "unchecked",
    "discloses",
    "remembers",
    "instructs",
    "sends",
    "undeclared",
    "contained",
    "elsewhere",
)


def checked_assessment(value: object, tool_name: str) -> Assessment:
    """Return `value`, protected if one of the files that it changes is; the tool need not know which files are.

    Raises `ToolError` unless it is an `Assessment` with fields of the declared types.
    """
    if (problem := _problem(value)) is not None:
        raise ToolError(f"the assessment of tool {tool_name!r} returned {problem}")
    assessment = cast("Assessment", value)
    if assessment.risk == "read" or assessment.protected:
        return assessment
    protected = next(filter(None, (protected_part(Path(path)) for path in assessment.paths)), None)
    if protected is None:
        return assessment
    return replace(assessment, protected=True, reasons=(*assessment.reasons, protection_reason(protected)))


def _problem(value: object) -> str | None:
    """Return a clause that says why `value` is no assessment, and what it must be; None for an assessment."""
    if not isinstance(value, Assessment):
        return f"{type(value).__name__}; it must return an Assessment"
    assessment: Any = value  # made by user code, with values of any type
    risk = assessment.risk
    if not isinstance(risk, str) or risk not in get_args(Risk):
        return f"an Assessment whose risk is {_describe(risk)}; it must be one of {', '.join(get_args(Risk))}"
    for name in _TEXTS:
        if not isinstance(text := getattr(assessment, name), str | None):
            return _wrong(name, text, "a text or None")
    for name in ("reasons", "paths", "hosts"):
        if not _is_texts(texts := getattr(assessment, name)):
            return _wrong(name, texts, "a tuple of texts")
    return _flag_problem(assessment) or _part_problem(assessment)


def _part_problem(assessment: Any) -> str | None:
    if not isinstance(assessment.shell, ShellCommand | None):
        return _wrong("shell", assessment.shell, "a ShellCommand or None")
    if (asks := assessment.asks) is not None and not _is_question(asks):
        return _wrong("asks", asks, "a UserQuestion of texts or None")
    if not isinstance(assessment.binding, Mapping):
        return _wrong("binding", assessment.binding, "a mapping of JSON values")
    return None


def _flag_problem(assessment: Any) -> str | None:
    for name in _FLAGS:
        if not isinstance(flag := getattr(assessment, name), bool):
            return _wrong(name, flag, "True or False")
    if assessment.sandboxed not in (None, False, "bubblewrap", "landlock"):
        return _wrong("sandboxed", assessment.sandboxed, "'bubblewrap', 'landlock', False or None")
    return None


def _is_question(value: object) -> bool:
    if not isinstance(value, UserQuestion):
        return False
    question: Any = value
    return isinstance(question.text, str) and _is_texts(question.options)


def _is_texts(value: object) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(item, str) for item in cast("Sequence[object]", value))


def _wrong(name: str, value: object, right: str) -> str:
    kind = type(value).__name__
    if isinstance(value, tuple | list):
        kinds = {type(item).__name__: None for item in cast("Sequence[object]", value)}
        kind += " of " + (", ".join(kinds) or "nothing")
    return f"an Assessment whose {name} is {kind}; it must be {right}"


def _describe(value: object) -> str:
    return repr(value[:50]) if isinstance(value, str) else type(value).__name__
