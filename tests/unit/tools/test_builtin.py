"""Tests of the built-in tools as a set."""

from __future__ import annotations

import subprocess
import sys

import jsonschema
import pytest

import agenticx.tools
from agenticx import builtin_tools
from agenticx.tools import Tool


def test_the_tools_come_in_a_fixed_order_with_their_arguments() -> None:
    assert [
        (tool.schema.name, tool.read_only, list(tool.schema.parameters["properties"])) for tool in builtin_tools()
    ] == [
        ("list_files", True, ["path", "depth"]),
        ("file_read", True, ["path", "offset", "limit"]),
        ("file_search", True, ["pattern", "path", "glob", "ignore_case", "literal", "limit"]),
        ("file_write", False, ["path", "content"]),
        ("file_edit", False, ["path", "old_text", "new_text", "replace_all"]),
        ("bash_exec", False, ["command", "timeout", "network", "unsandboxed"]),
        ("todo_write", False, ["todos"]),
        ("scratchpad_write", False, ["key", "content"]),
        ("scratchpad_read", True, ["key"]),
        ("ask_user", False, ["text", "options"]),
        ("create_file", False, ["content", "path"]),
        ("edit_file", False, ["path", "old_text", "new_text", "count", "edits"]),
        ("artifact_read", True, ["path"]),
        ("artifact_save", False, ["path", "to"]),
    ]


@pytest.mark.parametrize("tool", builtin_tools(), ids=lambda tool: tool.schema.name)
def test_every_schema_is_valid_described_and_closed(tool: Tool) -> None:
    parameters = tool.schema.parameters
    jsonschema.Draft202012Validator.check_schema(parameters)
    assert parameters["additionalProperties"] is False
    assert tool.schema.description
    assert [name for name, schema in parameters["properties"].items() if "description" not in schema] == []


def test_public_names_are_sorted_and_exist() -> None:
    assert agenticx.tools.__all__ == sorted(agenticx.tools.__all__)
    assert all(hasattr(agenticx.tools, name) for name in agenticx.tools.__all__)


@pytest.mark.ci_lane
@pytest.mark.parametrize("package", ["httpx", "structlog", "rich", "ctypes", "starlette"])
@pytest.mark.cases(quick=1)
def test_importing_the_tools_imports_no_heavy_packages(package) -> None:
    program = f"import sys, agenticx.tools.registry, agenticx.tools.builtin; sys.exit({package!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
