"""Generator of `config/default.toml`: `python -m tests.repo.default_toml > config/default.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from agenticx.settings import PROJECT_SETTINGS, UNUSED_SETTINGS, Settings

HEADER = """\
# Every setting of AgenticX with its default. This page is written from the code and read by nobody but you:
# put what you want to change into ~/.agenticx/settings.toml, or set AGX_ and the name in capital letters.
# What is marked [project] may also stand in .agenticx/settings.toml of a workspace. What is marked [not read yet] is
# checked and has no effect yet.
"""


def render() -> str:
    """Return the whole file: one comment and one line for each setting; one without a default is commented out."""
    lines = [HEADER]
    for name, field in Settings.model_fields.items():
        mark = " [project]" if name in PROJECT_SETTINGS else ""
        mark += " [not read yet]" if name in UNUSED_SETTINGS else ""
        unset = field.default is None
        lines += [f"# {field.description}{mark}", f"{'# ' if unset else ''}{name} = {_value(field)}", ""]
    return "\n".join(lines)


def _value(field: FieldInfo) -> str:
    default: Any = field.default
    if isinstance(default, str | Path):
        return f'"{default}"'
    if field.examples:
        return str(field.examples[0])
    if default is None:
        return "[]" if "tuple" in str(field.annotation) else '""'
    return str(list(default)) if isinstance(default, tuple) else str(default)


if __name__ == "__main__":
    print(render(), end="")
