"""The configuration of a team, as a file has it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, Self, cast, get_args

from pydantic import Discriminator, Field, Tag, TypeAdapter, field_validator, model_validator

from agenticx.config_files.table import (
    MAX_LISTED,
    UNKNOWN_KIND,
    ConfigTable,
    known_names,
    parse_table,
    repeated_name,
    shortened,
    tags_of,
)
from agenticx.messages import MAIN_AGENT
from agenticx.teams.configured.errors import TeamConfigError
from agenticx.teams.termination.conditions import (
    ConfiguredCondition,
    HandoffTermination,
    SourceMatchTermination,
    TextMentionTermination,
    TextMessageTermination,
)

__all__ = ["AssistantConfig", "ParticipantConfig", "SelectorConfig", "TeamConfig", "UserConfig", "parse_team"]

_USER = "user"  # the source of its task
_MAX_NAME_CHARS = 64
_MAX_TURNS = 10_000  # as in the setting team_max_turns

_PLACEHOLDERS = ("roles", "participants", "history")
_PLACEHOLDER = re.compile(r"(?<!\{)\{([^\W\d]\w*+)\}(?!\})")  # not the braces of JSON, nor doubled ones

_Text = Annotated[str, Field(min_length=1)]


class _Participant(ConfigTable):
    """A participant; its name is the agent id in events, a selector's model reads its description."""

    name: Annotated[_Text, Field(max_length=_MAX_NAME_CHARS)]
    description: _Text | None = None

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not name.isidentifier() or name == MAIN_AGENT:
            right = f"an identifier such as code_writer, other than {MAIN_AGENT}"
            raise ValueError(f"is {shortened(name)}; right would be {right}")
        return name


class AssistantConfig(_Participant):
    """An agent with a model; `tools` are names of the session's tools, `model` is by default the session's."""

    kind: Literal["assistant"] = "assistant"
    model: _Text | None = None
    system_message: _Text
    tools: list[_Text] = Field(default_factory=list[str], max_length=MAX_LISTED)
    handoffs: list[_Text] = Field(default_factory=list[str], max_length=MAX_LISTED)

    @field_validator("name")
    @classmethod
    def _check_not_user(cls, name: str) -> str:
        if name == _USER:
            raise ValueError(
                f"is {name!r}, so models would take its words for those of the person; choose another name"
            )
        return name

    @field_validator("tools", "handoffs")
    @classmethod
    def _check_unique(cls, names: list[str]) -> list[str]:
        if (twice := repeated_name(names)) is not None:
            raise ValueError(f"names {shortened(twice)} twice")
        return names


class UserConfig(_Participant):
    """A person, who is asked in the session when it is their turn to speak."""

    kind: Literal["user"]


def _participant_kind(given: object) -> str:
    kind = cast("Mapping[str, object]", given).get("kind", "assistant") if isinstance(given, Mapping) else "assistant"
    return kind if isinstance(kind, str) else shortened(kind)


ParticipantConfig = Annotated[
    Annotated[AssistantConfig, Tag("assistant")] | Annotated[UserConfig, Tag("user")],
    Discriminator(
        _participant_kind,
        custom_error_type=UNKNOWN_KIND,
        custom_error_message="has an unknown kind; right would be assistant or user",
    ),
]


class _Team(ConfigTable):
    """A team; its runs end when any condition is met, or after `max_turns` speeches, by default `team_max_turns`."""

    description: _Text | None = None
    participants: Annotated[list[ParticipantConfig], Field(min_length=1, max_length=MAX_LISTED)]
    termination: list[ConfiguredCondition] = Field(default_factory=list[ConfiguredCondition], max_length=MAX_LISTED)
    max_turns: Annotated[int, Field(ge=1, le=_MAX_TURNS)] | None = None

    @property
    def names(self) -> Sequence[str]:
        """The names of the participants."""
        return [participant.name for participant in self.participants]

    @property
    def assistants(self) -> Sequence[AssistantConfig]:
        """The participants that have a model."""
        return [participant for participant in self.participants if isinstance(participant, AssistantConfig)]

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = self.names
        if (twice := repeated_name(names)) is not None:
            raise ValueError(f"has two participants with the name {twice!r}")
        ending = [condition.target for condition in self.termination if isinstance(condition, HandoffTermination)]
        targets_known = dict.fromkeys([*names, *sorted(ending)])
        sources_known = dict.fromkeys([*names, _USER])
        for number, participant in enumerate(self.participants):
            targets = participant.handoffs if isinstance(participant, AssistantConfig) else ()
            _check_known(f"participants[{number}].handoffs", targets, targets_known, "participant")
            if participant.name in targets:
                raise ValueError(f"has a participant {participant.name!r} that hands over to itself")
        for number, condition in enumerate(self.termination):
            where = f"termination[{number}]"
            match condition:
                case TextMentionTermination(sources=sources) | SourceMatchTermination(sources=sources):
                    _check_known(f"{where}.sources", sources or (), sources_known, "source")
                case TextMessageTermination(source=str(source)):
                    _check_known(f"{where}.source", [source], sources_known, "source")
                case HandoffTermination(target=target) if not target.isidentifier():  # it is part of a tool's name
                    right = "an identifier such as a participant's name"
                    raise ValueError(f"has in {where} the target {shortened(target)}; right would be {right}")
                case _:
                    pass
        return self


class RoundRobinConfig(_Team):
    """A team whose participants speak in their order."""

    kind: Literal["round_robin"]


class SelectorConfig(_Team):
    """A team in which a model chooses the next speaker, by default the session's."""

    kind: Literal["selector"]
    model: _Text | None = None
    selector_prompt: _Text | None = None
    allow_repeated_speaker: bool = False

    @field_validator("selector_prompt")
    @classmethod
    def _check_placeholders(cls, prompt: str | None) -> str | None:
        for name in _PLACEHOLDER.findall(prompt or ""):
            if name not in _PLACEHOLDERS:
                known = ", ".join(f"{{{one}}}" for one in _PLACEHOLDERS)
                raise ValueError(f"has the unknown placeholder {shortened(f'{{{name}}}')}; known: {known}")
        return prompt


class SwarmConfig(_Team):
    """A team whose participants hand over to each other; the first one begins."""

    kind: Literal["swarm"]


TeamConfig = RoundRobinConfig | SelectorConfig | SwarmConfig

_ADAPTER: TypeAdapter[TeamConfig] = TypeAdapter(Annotated[TeamConfig, Field(discriminator="kind")])
_TAGS = {
    "kind": tags_of(get_args(TeamConfig), "kind"),
    "type": tags_of(get_args(get_args(ConfiguredCondition)[0]), "type"),
}


def parse_team(text: str, where: str) -> TeamConfig:
    """Return the team that the TOML `text` describes; `where` names its file in a `TeamConfigError`."""
    return parse_table(text, where, _ADAPTER, error=TeamConfigError, tags=_TAGS)


def _check_known(where: str, names: Iterable[str], known: Mapping[str, None], what: str) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"names in {where} the unknown {what} {shortened(name)}; known: {known_names(known)}")
