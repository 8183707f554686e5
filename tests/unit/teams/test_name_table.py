"""The table of names in the docstring of `agenticx.teams`."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

import agenticx.teams

_ROW = re.compile(r"^    (\S.*?) {2,}(\w+)\.([\w.]+)(?: \((.*)\))?$", re.MULTILINE)


def table() -> dict[str, tuple[str, str, str]]:
    """Return the package, the name in it and the remark beside each foreign name."""
    rows = {
        there: (package, name, remark) for there, package, name, remark in _ROW.findall(agenticx.teams.__doc__ or "")
    }
    assert len(rows) >= 20
    return rows


@pytest.mark.parametrize(("package", "name"), [(package, name) for package, name, _ in table().values()])
def test_each_of_our_names_exists_and_is_public(package: str, name: str) -> None:
    module = import_module(f"agenticx.{package}")
    first, *rest = name.split(".")
    assert first in module.__all__
    found = getattr(module, first)
    for part in rest:
        found = found.model_fields[part] if part in getattr(found, "model_fields", {}) else getattr(found, part)
    assert found is not None


def test_the_renamed_parts_are_as_the_table_says() -> None:
    rows = table()
    assert rows["transfer_to_x"][2] == f"`{agenticx.teams.Handoff('X').name}`"
    assert rows["MetaChain.run"][:2] == ("core", "AgentExecutor.chat")
    assert rows["BaseLLMProvider"][:2] == ("llms", "ChatModel")
    assert rows["ContextCompiler"][:2] == ("runtime", "ContextCompactor")
