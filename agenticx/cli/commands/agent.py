"""The `agx agent` command: the agents of files."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Collection

from agenticx.assembly import make_toolbox
from agenticx.cli.action_parser import ActionParser
from agenticx.cli.exit_codes import DONE
from agenticx.cli.options import current_folder
from agenticx.config_files.named import NamedFile
from agenticx.core.agent_files import AgentConfig, AgentFiles, agent_item, with_model_problems
from agenticx.llms.model_cache import NamedModels
from agenticx.sessions.store.factory import using_shared_state
from agenticx.settings import load_settings
from agenticx.tools.visible import visible_line

__all__ = ["configure", "run"]

_EPILOG = """\
An agent is a file: NAME.toml in the folder agents of AGX_HOME, or one of those that come with AgenticX, which a file of
yours with the same name replaces. For example:

    description = "Answers about the files of a folder."
    model = "demo"                                  # by default the one that sessions have
    tools = ["file_read", "file_search", "list_files"]  # by default those that sessions have
    system_prompt = "Answer from the files in {workspace}, and name those that you used."

A session that is made with an agent keeps what the file says then; a later edit is for later sessions. To begin with an
agent that comes with AgenticX, copy its file, whose path `agx agent list` shows.

examples:
  agx agent list
  agx run --agent page-builder "Build a page about a bakery"
  agx run --agent page-builder --image screenshot.png "Rebuild this page"
  agx chat --agent page-builder

exit codes: 0 done, 2 usage"""


def configure(parser: ArgumentParser) -> None:
    """Add the action and help texts of `agx agent` to its parser."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(parser_class=ActionParser, dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="The agents of files", allow_abbrev=False)
    listing.add_argument("--json", action="store_true", help="one object per line")


def run(arguments: Namespace) -> int:
    """Run `agx agent list` and return its exit code."""
    settings = load_settings(project=current_folder())
    available = make_toolbox(None, settings).names
    with using_shared_state(settings):
        found = with_model_problems(AgentFiles(settings.home).list_all(), NamedModels(settings).get)
    for agent in found:
        print(
            json.dumps({**agent_item(agent), "path": str(agent.path)})
            if arguments.json
            else visible_line(_to_line(agent, available), 2_000)
        )
    return DONE


def _to_line(agent: NamedFile[AgentConfig], available: Collection[str]) -> str:
    if agent.config is None:
        return f"{agent.name:<16}  cannot be used: {agent.problem}"
    origin = f"packaged: {agent.path}" if agent.origin == "packaged" else str(agent.path)
    line = f"{agent.name:<16}  {agent.config.description or '(no description)'}  ({origin})"
    if agent.problem is not None:
        return f"{line}; cannot be used: {agent.problem}"
    missing = [name for name in agent.config.tools or () if name not in available]
    return f"{line}; without tools that are not available here: {', '.join(missing)}" if missing else line
