"""The description of team files in the docstring of the package."""

from __future__ import annotations

import re
import textwrap
from typing import get_args

import agenticx.teams.configured
from agenticx.teams.configured.config import AssistantConfig, RoundRobinConfig, SelectorConfig, UserConfig, parse_team
from agenticx.teams.termination.conditions import ConfiguredCondition

DOC = agenticx.teams.configured.__doc__ or ""
EXAMPLE, *TABLES = [textwrap.dedent(block) for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", DOC, re.MULTILINE)]


def test_the_example_is_a_team() -> None:
    team = parse_team(EXAMPLE, "example.toml")
    assert (team.kind, team.names) == ("swarm", ["desk", "clerk"])


def test_every_key_is_described() -> None:
    described = {word for table in TABLES for word in re.findall(r"^(\w+)\?? {2}", table, re.MULTILINE)}
    conditions = get_args(get_args(ConfiguredCondition)[0])
    keys = {key for config in (SelectorConfig, AssistantConfig, UserConfig) for key in config.model_fields}
    types = {get_args(condition.__pydantic_fields__["type"].annotation)[0] for condition in conditions}
    assert described == keys | types


def test_keys_that_may_be_left_out_are_marked() -> None:
    team, selector, participant, _ = [dict(re.findall(r"^(\w+)(\??) {2}", table, re.MULTILINE)) for table in TABLES]
    for table, config in ((team, RoundRobinConfig), (team | selector, SelectorConfig), (participant, AssistantConfig)):
        assert table == {key: "" if field.is_required() else "?" for key, field in config.model_fields.items()}


def test_every_key_of_a_condition_is_described_with_its_type() -> None:
    for condition in get_args(get_args(ConfiguredCondition)[0]):
        name = get_args(condition.__pydantic_fields__["type"].annotation)[0]
        (line,) = re.findall(rf"^{name} {{2,}}(.*)$", TABLES[-1], re.MULTILINE)
        keys = [
            f"{key}{'' if field.is_required() else '?'}"
            for key, field in condition.__pydantic_fields__.items()
            if key != "type"
        ]
        assert line.startswith(f"{', '.join(keys)}: " if keys else "a ")
