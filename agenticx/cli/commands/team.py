"""The `agx team` command: the configured teams, and a run of one in the terminal."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace

from agenticx.assembly import configured_images, make_toolbox
from agenticx.cli.action_parser import ActionParser
from agenticx.cli.commands.message_input import add_attach_option, load_attachments, read_task
from agenticx.cli.exit_codes import DONE, USAGE
from agenticx.cli.options import ANSWERS, add_turn_options, current_folder
from agenticx.cli.terminal.conversation import TerminalConversation
from agenticx.cli.terminal.opening import open_conversation
from agenticx.cli.terminal.output import output_for
from agenticx.errors import AttachmentRefused, SettingsError
from agenticx.llms.model_cache import NamedModels
from agenticx.messages import UserMessage
from agenticx.sessions.store.factory import using_shared_state
from agenticx.settings import load_settings
from agenticx.teams.configured.build import with_problems
from agenticx.teams.configured.files import ConfiguredTeam, TeamFiles, team_item
from agenticx.tools.visible import visible_line

__all__ = ["configure", "run"]

_EPILOG = """\
A team is a file: NAME.toml in the folder teams of AGX_HOME, or one of those that come with AgenticX, which a file of
yours with the same name replaces. `agx team run NAME --help` has examples of runs.

    kind = "round_robin"            # or selector, in which a model chooses who speaks, or swarm, with handoffs
    max_turns = 6                   # speeches in a run; without max_turns a run ends after 100

    [[participants]]
    name = "writer"
    system_message = "Write the text that the user asks for."
    tools = ["file_read"]           # of the session's tools; model = "provider:name", handoffs = ["critic"]

    [[participants]]
    name = "critic"
    system_message = "Answer APPROVE, or say what to change."

    [[termination]]                 # the run ends when one of these conditions is met
    type = "text_mention"
    text = "APPROVE"                # sources = ["critic"]

    The other conditions and their keys: max_messages (max_messages), text_message (source), source_match (sources),
    handoff (target), function_call (function_name), token_usage (max_total_token, max_prompt_token,
    max_completion_token), cost (max_cost_usd), timeout (timeout_seconds), stuck (repeats), stop_message.

    A participant with kind = "user" is you: you are asked when it is your turn. A handoff may also go to nobody in the
    team, if a condition handoff has that target: the run ends, and your next message answers the agent.
    A selector may have model, allow_repeated_speaker and selector_prompt, in which {roles} becomes the names with their
    descriptions, {participants} those who may speak now and {history} the last messages.

    A file must have kind and participants, and of an agent the name and the system_message. `python -m pydoc
    agenticx.teams.configured` describes all keys, and marks those that may be left out. To begin with a team that comes
    with AgenticX, copy its file, whose path `agx team list` shows.

exit codes: 0 done, 1 fatal error, 2 usage, 130 stopped"""

_RUN_EPILOG = f"""\
Each run is a turn of a session with this team, which is stored, and each speech a child turn of it: the page, `agx
sessions` and other clients show them. The last speech goes to stdout; at a terminal the others do too. Without a task a
continued session goes on where its team stopped.

{ANSWERS}

examples:
  agx team run writer-critic "A haiku about tests"
  agx team run writer-critic -c
  agx team run review "Is the error handling sound?" --json | jq -r 'select(.type == "final") | .data.text'

exit codes: 0 final, 1 fatal error, 2 usage, 130 stopped"""


def configure(parser: ArgumentParser) -> None:
    """Add the actions and help texts of `agx team` to its parser."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(parser_class=ActionParser, dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="The configured teams", allow_abbrev=False)
    listing.add_argument("--json", action="store_true", help="one object per line")
    listing.set_defaults(work=_list)
    running = actions.add_parser(
        "run",
        help="Run a team on a task",
        description="Run a team on a task.",
        epilog=_RUN_EPILOG,
        formatter_class=parser.formatter_class,
        allow_abbrev=False,
    )
    add_turn_options(running)
    add_attach_option(running)
    running.add_argument("team", metavar="NAME", help="the name of the team, see `agx team list`")
    running.add_argument(
        "task", nargs="?", help="the task, to which piped input is added; - reads all of it from stdin"
    )
    running.add_argument("--json", action="store_true", help="print the events as stored, one envelope per line")
    running.set_defaults(work=_run)


def run(arguments: Namespace) -> int:
    """Run `agx team` and return its exit code."""
    code: int = arguments.work(arguments)
    return code


# --- list -------------------------------------------------------------------------------------------------------------


def _list(arguments: Namespace) -> int:
    settings = load_settings(project=current_folder())
    with using_shared_state(settings):
        toolbox = make_toolbox(None, settings, configured_images(settings))
        found = with_problems(TeamFiles(settings.home).list_all(), NamedModels(settings).get, toolbox)
    for team in found:
        print(
            json.dumps({**team_item(team), "path": str(team.path)})
            if arguments.json
            else visible_line(_to_line(team), 2_000)
        )
    return DONE


def _to_line(team: ConfiguredTeam) -> str:
    if team.config is None:
        return f"{team.name:<16}  cannot be used: {team.problem}"
    origin = f"packaged: {team.path}" if team.origin == "packaged" else str(team.path)
    line = f"{team.name:<16}  {team.config.kind:<11}  {', '.join(team.config.names)}  ({origin})"
    return line if team.problem is None else f"{line}; cannot be used, unless an application adds it: {team.problem}"


# --- run --------------------------------------------------------------------------------------------------------------


def _run(arguments: Namespace) -> int:
    try:
        message = UserMessage(content=_task(arguments), attachments=load_attachments(arguments.attach))
    except AttachmentRefused as exc:
        print(f"agx team: {visible_line(str(exc), 2_000)}", file=sys.stderr)
        return USAGE
    with open_conversation(arguments, output_for(as_json=arguments.json)) as conversation:
        _check_session(conversation, arguments.team)
        return conversation.run_single_turn(message, command=f"agx team run {arguments.team}")


def _task(arguments: Namespace) -> str:
    """Return the task, "" to go on without one; raise `SettingsError` if there is nothing to go on with."""
    if arguments.task is not None:
        return read_task(arguments.task)
    if arguments.session is None and not arguments.attach:
        raise SettingsError("give the team a task, or a session to go on with (--session)")
    return ""


def _check_session(conversation: TerminalConversation, team: str) -> None:
    """Raise `SettingsError` if the session that is continued has another team or none."""
    session = conversation.session
    if session is not None and session.record.team != team:
        has = "no team" if session.record.team is None else f"the team {session.record.team!r}"
        raise SettingsError(f"session {session.id} has {has}; leave --session out to run {team!r} in a new one")
