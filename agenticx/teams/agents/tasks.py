"""The task of a run, as messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from agenticx.teams.agents.protocols import TaskInput
from agenticx.teams.messages import BaseChatMessage, TextMessage

__all__ = ["task_messages"]


def task_messages(task: TaskInput) -> list[BaseChatMessage]:
    """Return the messages of a task: none for None; ValueError for an empty list and for anything else."""
    if task is None:
        return []
    if isinstance(task, str):
        return [TextMessage(content=task)]
    if isinstance(task, BaseChatMessage):
        return [task]
    if not isinstance(cast("object", task), Sequence):
        raise ValueError(f"a task must be text, a chat message or a list of these messages, not a {type(task)}")
    if not task:
        raise ValueError("Task list cannot be empty")
    if not all(isinstance(cast("object", message), BaseChatMessage) for message in task):
        raise ValueError("All messages in task list must be valid BaseChatMessage types")
    return list(task)
