"""The properties of a session, and what is kept of a turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agenticx.llms.sampling import Sampling
from agenticx.messages import new_id
from agenticx.permissions.verdict import PermissionMode

__all__ = [
    "SessionRecord",
    "TurnRecord",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """The properties of a session apart from its events.

    - `tools` are names of tools, and `vaults` ids of vaults of notes; None means all.
    - `model` and `system_prompt` are None for the hub's defaults.
    - `workspace_host` is the host that has the workspace, see `hosts.is_this_host`.
    - `agent` is the name of the agent that answers the next message, None for the main agent.
    - `agent_file` is the name of the main agent if it came from a file, whose prompt, model and tools were copied.
    - `team` is the name of the configured team that its turns run, None for an agent.
    - `forked_from` is the id of the session that this one was forked from.
    """

    id: str = field(default_factory=lambda: new_id("ses"))
    name: str | None = None
    model: str | None = None
    permission_mode: PermissionMode = "default"
    workspace: str
    workspace_host: str | None = None
    tools: tuple[str, ...] | None = None
    vaults: tuple[str, ...] | None = None
    system_prompt: str | None = None
    agent: str | None = None
    agent_file: str | None = None
    team: str | None = None
    pinned: bool = False
    archived: bool = False
    forked_from: str | None = None
    created_at: str

    @property
    def agent_name(self) -> str | None:
        """The name of the agent that answers the next message; None for a main agent without one."""
        return self.agent or self.agent_file


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """A turn.

    - `after_seq` is the sequence number just before its first event, None until that is stored.
    - `attachments_digest` is the fingerprint of the attachments of the input, "" for none.
    - `model`, `permission_mode` and `vaults` replace the session's; `sampling` takes precedence over the model's.
    - `output_schema` is the JSON Schema of the answer, None for text.
    - `mode` is the user's choice, None to detect it in the words of the input.
    - `variants` are the options that it was to make: a number, or the names of their models.
    - `parent_turn_id` is the id of the parent turn, None for a turn that a message of the user began.
    """

    id: str = field(default_factory=lambda: new_id("turn"))
    session_id: str
    input: str
    attachments_digest: str = ""
    client_turn_id: str | None = None
    model: str | None = None
    permission_mode: PermissionMode | None = None
    sampling: Sampling | None = None
    output_schema: Mapping[str, Any] | None = None
    mode: str | None = None
    vaults: tuple[str, ...] | None = None
    variants: int | tuple[str, ...] | None = None
    after_seq: int | None = None
    parent_turn_id: str | None = None
