"""The files of configured teams: where they are, and what is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from agenticx import AgenticXError, builtin_tools
from agenticx.teams import TeamConfigError, UnknownTeam
from agenticx.teams.configured.build import check_parts
from agenticx.teams.configured.files import TeamFiles, team_item

TEAM = """
kind = "round_robin"
[[participants]]
name = "writer"
system_message = "Write."
"""


def write(home: Path, name: str, text: str) -> TeamFiles:
    (home / "teams").mkdir(exist_ok=True)
    (home / "teams" / f"{name}.toml").write_text(text, encoding="utf-8")
    return TeamFiles(home)


def test_the_packaged_teams_are_usable_with_the_built_in_tools(tmp_path: Path) -> None:
    teams = TeamFiles(tmp_path / "nothing").list_all()
    assert [(team.name, team.origin, team.problem) for team in teams] == [
        (name, "packaged", None) for name in ("review", "triage", "writer-critic")
    ]
    assert {team.config.kind for team in teams if team.config} == {"round_robin", "selector", "swarm"}
    for team in teams:
        assert team.config is not None
        assert "stuck" in [condition.type for condition in team.config.termination]
        check_parts(team.name, team.config, lambda _name: None, builtin_tools())


def test_a_file_of_the_user_hides_the_packaged_one(tmp_path: Path) -> None:
    files = write(tmp_path, "review", TEAM)
    assert files.read("review").kind == "round_robin"
    (listed,) = [team for team in files.list_all() if team.name == "review"]
    assert (listed.origin, listed.path) == ("user", tmp_path / "teams" / "review.toml")


def test_an_unknown_team_is_refused_with_the_known_names(tmp_path: Path) -> None:
    files = write(tmp_path, "mine", TEAM)
    with pytest.raises(UnknownTeam, match="unknown team 'nope'; known teams: mine, review, triage, writer-critic"):
        files.read("nope")


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "..", "a/b", "", "mine.toml", "a\0b", "é"])
def test_no_name_leads_outside_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.toml").write_text(TEAM, encoding="utf-8")
    with pytest.raises(UnknownTeam):
        write(tmp_path, "mine", TEAM).read(name)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("two words", "two words"), ("red\x1b[31m", "red⟨U+001B⟩[31m"), ("latin-\udce9", "latin-⟨U+DCE9⟩")],
)
def test_a_file_whose_name_is_none_of_a_team_is_listed_with_that_problem(tmp_path: Path, name: str, shown: str) -> None:
    files = write(tmp_path, name, TEAM)
    (listed,) = [team_item(team) for team in files.list_all() if team.origin == "user"]
    assert (listed["name"], listed["kind"]) == (shown, None)
    assert listed["problem"] == f"the name of a team has 1 to 64 letters, digits, _ and -, not {name!r}"
    assert files.names() == ["review", "triage", "writer-critic"]


def test_hidden_files_are_not_listed(tmp_path: Path) -> None:
    files = write(tmp_path, ".#mine", TEAM)
    assert {team.origin for team in files.list_all()} == {"packaged"}


def test_a_link_to_a_file_outside_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.toml").write_text(TEAM, encoding="utf-8")
    files = write(tmp_path, "mine", TEAM)
    (tmp_path / "teams" / "link.toml").symlink_to(tmp_path / "secret.toml")
    with pytest.raises(TeamConfigError, match=r"link\.toml is a link to .*secret\.toml; right would be a file in that"):
        files.read("link")
    assert {team.name: team.problem is None for team in files.list_all() if team.origin == "user"} == {
        "link": False,
        "mine": True,
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind = ", "is not TOML"),
        ("", r"kind is missing; right would be one of 'round_robin', 'selector', 'swarm'$"),
        ('kind = "duel"\nparticipants = []', r"kind is 'duel'; right would be one of 'round_robin', 'sel"),
        ('kind = "swarm"', r"participants is missing"),
        ('kind = "swarm"\nparticipants = []', r"participants is \[\]: list should have at least 1 item"),
        ('colour = "red"' + TEAM, r"the file has the unknown key 'colour'; known keys: description, participants, "),
        ('selector_prompt = "x"' + TEAM, r"the file has the unknown key 'selector_prompt'"),
        ("max_turns = 0" + TEAM, r"max_turns is 0: input should be greater than or equal to 1"),
        ("max_turns = 100000000000000000000000000" + TEAM, r"max_turns is 1000.*: input should be less than or equal"),
        ('kind = "swarm"\nparticipants = [1]', r"participants\[0\] is 1; right would be a table"),
        ('kind = "swarm"\nparticipants = 1', r"participants is 1: input should be a valid list"),
        (TEAM.replace("[[p", "termination = [1]\n[[p"), r"termination\[0\] is 1; right would be a table"),
        (TEAM.replace("[[p", f"description{'.a' * 2_000} = 1\n[[p"), r"description is \{'a': .*: input should be a v"),
        (TEAM + TEAM[TEAM.index("[[") :] * 100, r"participants is \[.*: list should have at most 100 items"),
        (TEAM.replace("writer", "w" * 65), r"participants\[0\]\.name is 'www.*: string should have at most 64 char"),
        ('kind = "swarm"\nparticipants = [1, 2, 3, 4, 5, 6, 7]', r"participants\[4\] is 5; .*; and 2 more problems$"),
        ('max_turns = "3"' + TEAM, r"max_turns is '3': input should be a valid integer"),
        (TEAM + 'modle = "demo"', r"participants\[0\] has the unknown key 'modle'; known keys: name, description"),
        (TEAM.replace('system_message = "Write."', ""), r"participants\[0\]\.system_message is missing"),
        (TEAM + "tools = 3", r"participants\[0\]\.tools is 3: input should be a valid list"),
        (TEAM + 'tools = ["a", "a"]', r"participants\[0\]\.tools names 'a' twice"),
        (TEAM + 'kind = "robot"', r"participants\[0\] has an unknown kind; right would be assistant or user"),
        (TEAM + 'kind = "user"', r"participants\[0\] has the unknown key 'system_message'; known keys: name, descr"),
        (TEAM.replace("writer", "two words"), r"participants\[0\]\.name is 'two words'; right would be an identifier"),
        (TEAM.replace("writer", "meta"), r"participants\[0\]\.name is 'meta'; right would be an identifier such as"),
        (TEAM.replace("writer", "user"), r"participants\[0\]\.name is 'user', so models would take its words for"),
        (TEAM + 'handoffs = ["nobody"]', r"names in participants\[0\]\.handoffs the unknown participant 'nobody'"),
        (TEAM + 'handoffs = ["writer"]', r"has a participant 'writer' that hands over to itself"),
        (TEAM + TEAM[TEAM.index("[[") :], r"has two participants with the name 'writer'"),
        (TEAM + '[[termination]]\ntype = "never"', r"termination\[0\]\.type is 'never'; right would be one of 'max"),
        (TEAM + "[[termination]]\ntext = 'x'", r"termination\[0\]\.type is missing; right would be one of 'max_me"),
        (
            'kind = "selector"\nselector_prompt = "{\\"a\\": {}} {{b}} {history} {rolles}"\n'
            + TEAM.replace('kind = "round_robin"', ""),
            r"selector_prompt has the unknown placeholder '{rolles}'; known: {roles}, {participants}, {history}$",
        ),
        (TEAM + '[[termination]]\ntype = "text_mention"', r"termination\[0\]\.text is missing"),
        (TEAM + '[[termination]]\ntype = "max_messages"', r"termination\[0\]\.max_messages is missing"),
        (TEAM + '[[termination]]\ntype = "token_usage"', r"termination\[0\] needs one of max_total_token, "),
        (TEAM + '[[termination]]\ntype = "timeout"\ntimeout_seconds = 0', r"timeout_seconds is 0.*greater than 0"),
        (TEAM + '[[termination]]\ntype = "handoff"\ntarget = "the user"', r"the target 'the user'; right would be an"),
        (
            TEAM + '[[termination]]\ntype = "text_mention"\ntext = "OK"\nsources = ["critic"]',
            r"names in termination\[0\]\.sources the unknown source 'critic'; known: writer, user",
        ),
    ],
)  # fmt: skip
def test_a_problem_is_reported_with_its_file_and_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(TeamConfigError, match=problem) as raised:
        write(tmp_path, "mine", text).read("mine")
    assert str(raised.value).startswith(str(tmp_path / "teams" / "mine.toml"))


def test_a_handoff_to_a_person_outside_is_accepted_where_it_ends_the_run(tmp_path: Path) -> None:
    ending = 'handoffs = ["Human"]\n[[termination]]\ntype = "handoff"\ntarget = "Human"'
    (participant,) = write(tmp_path, "mine", TEAM + ending).read("mine").participants
    assert participant.name == "writer"


def test_a_file_that_begins_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    assert write(tmp_path, "mine", f"\ufeff{TEAM}").read("mine").names == ["writer"]


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(TeamConfigError, match="larger than 262144 bytes"):
        write(tmp_path, "mine", TEAM + "#" * 262_144).read("mine")


def test_a_session_without_a_tool_or_a_model_of_the_team_cannot_run_it(tmp_path: Path) -> None:
    config = write(tmp_path, "mine", TEAM + 'tools = ["file_read", "teleport"]\nmodel = "gone"').read("mine")

    def find(name: str) -> object:
        raise AgenticXError(f"unknown model {name!r}")

    with pytest.raises(TeamConfigError, match=r"team 'mine': participant 'writer': .*'teleport'.*in this session"):
        check_parts("mine", config, find, builtin_tools())
    known = write(tmp_path, "mine", TEAM + 'model = "gone"').read("mine")
    with pytest.raises(AgenticXError, match="unknown model 'gone'"):
        check_parts("mine", known, find, builtin_tools())
