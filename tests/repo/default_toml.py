"""Generator of `config/default.toml`: `python -m tests.repo.default_toml > config/default.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from agenticx.settings import PROJECT_SETTINGS, Settings

HEADER = """\
# All settings of AgenticX with their defaults. This file is documentation: it is generated from the code, and AgenticX
# does not read it. To change a setting, put it into ~/.agenticx/settings.toml or set the environment variable AGX_NAME
# (the name in capital letters). Settings marked [project] may also be in .agenticx/settings.toml of a workspace, which
# is read when a turn begins. Seconds are decimals from 0.05 to 86400 unless stated otherwise; a value out of range is
# an error at the start, but for max_tool_rounds, which becomes the nearest allowed one, with a log line that says so.
"""


def render() -> str:
    """Return the whole file: one comment and one line for each setting; one without a default is commented out."""
    lines = [HEADER]
    for name, field in Settings.model_fields.items():
        mark = " [project]" if name in PROJECT_SETTINGS else ""
        unset = field.default is None
        lines += [f"# {field.description}{mark}", f"{'# ' if unset else ''}{name} = {_value(field)}", ""]
    return "\n".join(lines)


def _value(field: FieldInfo) -> str:
    default: Any = field.default
    if isinstance(default, str | Path):
        return f'"{default}"'
    if isinstance(default, bool):
        return str(default).lower()
    if field.examples:
        return str(field.examples[0])
    if default is None:
        return "[]" if "tuple" in str(field.annotation) else '""'
    return str(list(default)) if isinstance(default, tuple) else str(default)


if __name__ == "__main__":
    print(render(), end="")
