"""The built-in tools, each by its name, for an agent that gets some of them.

from agenticx import Agent
from agenticx.tools.builtin import file_read, list_files

agent = Agent(model="demo", tools=[list_files, file_read])
"""

from __future__ import annotations

from agenticx.tools.base import Tool
from agenticx.tools.builtin.artifacts import artifact_read, artifact_save, create_file, edit_file
from agenticx.tools.builtin.ask import ask_user
from agenticx.tools.builtin.edits import file_edit, file_write
from agenticx.tools.builtin.files import file_read, list_files
from agenticx.tools.builtin.images import image_tools
from agenticx.tools.builtin.plan import scratchpad_read, scratchpad_write, todo_write
from agenticx.tools.builtin.search import file_search
from agenticx.tools.builtin.shell import bash_exec

__all__ = [
    "artifact_read",
    "artifact_save",
    "ask_user",
    "bash_exec",
    "builtin_tools",
    "create_file",
    "edit_file",
    "file_edit",
    "file_read",
    "file_search",
    "file_write",
    "image_tools",
    "list_files",
    "scratchpad_read",
    "scratchpad_write",
    "todo_write",
]


def builtin_tools() -> list[Tool]:
    """Return the built-in tools, in the order in which a model sees them.

    - `list_files`, `file_read` and `file_search` read the workspace; `file_write` and `file_edit` change its files.
    - `bash_exec` runs a shell command.
    - `todo_write`, `scratchpad_write` and `scratchpad_read` keep a to-do list and notes of the session.
    - `ask_user` asks the user a question.
    - `create_file`, `edit_file`, `artifact_read` and `artifact_save` are for files that live in the session, such as
      pages; the last one copies such a file to the workspace.

    Some of them: `from agenticx.tools.builtin import file_read, list_files`. `image_tools(provider)` makes more.
    """
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
