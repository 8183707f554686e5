"""The built-in tools."""

from __future__ import annotations

from agenticx.tools.base import Tool
from agenticx.tools.builtin.artifacts import artifact_read, artifact_save, create_file, edit_file
from agenticx.tools.builtin.ask import ask_user
from agenticx.tools.builtin.edits import file_edit, file_write
from agenticx.tools.builtin.files import file_read, list_files
from agenticx.tools.builtin.plan import scratchpad_read, scratchpad_write, todo_write
from agenticx.tools.builtin.search import file_search
from agenticx.tools.builtin.shell import bash_exec

__all__ = ["builtin_tools"]


def builtin_tools() -> list[Tool]:
    """Return the built-in tools, in the order in which a model sees them."""
    return [
        list_files,
        file_read,
        file_search,
        file_write,
        file_edit,
        bash_exec,
        todo_write,
        scratchpad_write,
        scratchpad_read,
        ask_user,
        create_file,
        edit_file,
        artifact_read,
        artifact_save,
    ]
