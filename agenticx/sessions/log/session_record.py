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

    `tools` None means all, and so does `vaults`, ids of vaults of notes; `model` None means the default one;
    `system_prompt` None means that of the hub; `team` is the name of the configured team that its turns run, None for
    an agent; `forked_from` is the id of the session it was made from. `workspace_host` is the host that has the
    workspace, see `hosts.is_this_host`. `agent` is the name of the agent that answers the next message, None the main
    one. `agent_file` is the name of the agent of a file with which the session was made, whose prompt, model and tools
    were copied then: it is the name of the main agent.
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

    `after_seq` is the sequence number just before its first event, None until that is stored. `attachments_digest` is
    the fingerprint of the attachments of the input, "" for none. `model` and `permission_mode` take the place of the
    session's, and `sampling` takes precedence over the model's. `output_schema` is the JSON Schema of the answer, None
    for text. `mode` is the one that the user has chosen, None for
    that of the words, and `vaults` are those of this turn, None for the session's. `variants` are the options that it
    was to make, a number or the names of their models. `parent_turn_id` is that of the turn above, None for a turn that
    a message of the user began.
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
