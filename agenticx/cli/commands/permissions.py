"""The `agx permissions` command: rules about calls are listed, changed, explained, and tried on past sessions."""

from __future__ import annotations

import json
import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

from agenticx.cli.action_parser import ActionParser
from agenticx.cli.commands.permission_explain import explain
from agenticx.cli.commands.permission_replay import replay, start_of_period
from agenticx.cli.exit_codes import DONE, USAGE
from agenticx.cli.options import known_tools, workspace_of
from agenticx.errors import InvalidArguments
from agenticx.permissions.advice import advise, holds_without_sandbox, is_about_commands, refuse_without_effect
from agenticx.permissions.rule_stores import IMPORTED_FILE, FileRules, RuleStore, open_rules, read_rule_file
from agenticx.permissions.rules import Rule, RuleOrigin, parse_rule
from agenticx.permissions.verdict import PermissionMode
from agenticx.sessions.store.factory import using_shared_state
from agenticx.settings import load_settings
from agenticx.tools.plurals import pluralize
from agenticx.tools.visible import visible_line, visible_path

__all__ = ["configure", "run"]

_MAX_RULE_CHARS = 300

_EPILOG = """\
RULE is: allow|ask|deny TOOL [path=GLOB] [command="WORDS"] [host=HOST] [server=NAME] [network=true|HOSTS] [exact=true],
as one argument or as several. TOOL `edit` stands for all tools that change files, and `*` for all (not with allow). A
path is relative to the workspace: * matches within a name, ** also folders. WORDS are the first words of a command.
HOSTS are those that a command may reach, separated by commas, such as pypi.org,*.example.com.

examples:
  agx permissions add allow bash_exec command="git commit"
  agx permissions add 'allow edit path=src/**'
  agx permissions add deny bash_exec command="git push" --user
  agx permissions list
  agx permissions remove rul_0123456789abcdef0123
  agx permissions explain bash_exec '{"command": "git -c core.pager=x diff"}'
  agx permissions explain file_write '{"path": "a.txt", "content": "hi"}' --permission-mode auto --json
  agx permissions replay allow bash_exec command=pytest --since 7d
  agx permissions import old/permissions.toml

exit codes: 0 done, 1 unknown id, or rules that cannot be used, 2 usage"""

_RULE_HELP = "the rule; see `agx permissions --help`"
_REPLAY_HELP = "only sessions that work in this folder"
_FOLDER_HELP = "the workspace (default: the current folder)"


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx permissions` to its parser."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(parser_class=ActionParser, dest="action", required=True, metavar="ACTION")

    def add(
        name: str, summary: str, work: Callable[[Namespace], int], *, cwd: str | None = _FOLDER_HELP
    ) -> ArgumentParser:
        action = actions.add_parser(name, help=summary[0].lower() + summary[1:], description=f"{summary}.")
        action.allow_abbrev = False
        if cwd is not None:
            action.add_argument("--cwd", metavar="D", type=Path, help=cwd)
        action.set_defaults(work=work, max_tool_rounds=None)
        return action

    listing = add("list", "The rules, oldest first; those that hold in the workspace have a *", _list)
    listing.add_argument("--json", action="store_true", help="one object per line")
    adding = add("add", "Add a rule for the workspace, or with --user for all", _add)
    adding.add_argument("words", nargs="+", metavar="RULE", help=_RULE_HELP)
    adding.add_argument("--user", action="store_true", help="for all workspaces")
    removing = add("remove", "Remove a rule", _remove, cwd=None)
    removing.add_argument("rule", metavar="ID", help="the id of a rule, as listed")
    explaining = add("explain", "Explain the verdict on a call (allow, ask or deny); nothing runs", explain)
    explaining.add_argument("tool", metavar="TOOL", help="the tool's name")
    explaining.add_argument("arguments", metavar="ARGS", help="its arguments, a JSON object")
    explaining.add_argument("--json", action="store_true", help="print {decision, rule, reasons}")
    explaining.add_argument("--permission-mode", metavar="MODE", choices=get_args(PermissionMode))
    replaying = add("replay", "What a rule would have decided in past sessions; nothing runs", replay, cwd=_REPLAY_HELP)
    replaying.add_argument("words", nargs="+", metavar="RULE", help=_RULE_HELP)
    replaying.add_argument(
        "--since", metavar="WHEN", type=start_of_period, help="a day, YYYY-MM-DD, or a time before now: 7d, 12h, 30m"
    )
    replaying.add_argument("--json", action="store_true", help="one object: counts, and the newest calls")
    importing = add("import", "Add the rules of a permissions.toml", _import, cwd=None)
    importing.add_argument("file", metavar="FILE", type=Path, help="the file")


def run(arguments: Namespace) -> int:
    """Run `agx permissions` and return its exit code."""
    try:
        code: int = arguments.work(arguments)
        return code
    except InvalidArguments as exc:
        print(f"agx permissions {arguments.action}: {visible_line(str(exc), 2_000)}", file=sys.stderr)
        return USAGE


@contextmanager
def _open_rules(*, only_reads: bool = False) -> Generator[RuleStore]:
    settings = load_settings()
    with using_shared_state(settings, only_reads=only_reads) as shared:
        yield open_rules(settings.home, shared)


def _list(arguments: Namespace) -> int:
    workspace = workspace_of(arguments)
    with _open_rules(only_reads=True) as store:
        rules = store.list()
    for rule in rules:
        holds = rule.holds_in(workspace)
        if arguments.json:
            print(json.dumps({**rule.to_json(), "holds_here": holds}))
        else:
            print(f"{'*' if holds else ' '} {_row(rule)}")
    if not rules:
        _note("there are no rules; `agx permissions add` adds one, and so does the answer `a` to a question")
    elif not arguments.json:
        _note(f"* holds in {visible_path(str(workspace))}; `agx permissions remove ID` takes a rule back")
    return DONE


def _row(rule: Rule) -> str:
    place = "everywhere" if rule.workspace is None else f"in {visible_path(rule.workspace)}"
    origin = _ORIGINS[rule.origin]
    return (
        f"{rule.id}  {rule.created_at[:10] or '-':<10}  {visible_line(str(rule), _MAX_RULE_CHARS)}  ({place}; {origin})"
    )


_ORIGINS: Mapping[RuleOrigin | None, str] = {
    "answer": "from an answer",
    "command": "added by agx",
    "http": "added over HTTP",
    None: "written in the file",
}


def _add(arguments: Namespace) -> int:
    workspace = None if arguments.user else str(workspace_of(arguments))
    rule = read_rule(arguments.words, workspace=workspace).model_copy(update={"origin": "command"})
    refuse_without_effect(rule)
    with _open_rules() as store:
        [stored] = store.add([rule])
        rules = store.list()
    print(_row(stored))
    if holds_without_sandbox(stored):
        _note(f"{stored.id} also allows the command where there is no sandbox; the rule of an answer keeps its sandbox")
    if stored.path is not None and is_about_commands(stored):
        _note(
            f"{stored.id} is looked for in the words of commands; what `make`, tests or git read or change is not seen"
        )
    _advise([stored], rules)
    return DONE


def _advise(added: Sequence[Rule], rules: Sequence[Rule]) -> None:
    """Print notes about rules that may not mean what they seem to."""
    tools = known_tools(load_settings())
    for rule in added:
        for clause in advise(rule, rules, tools):
            _note(f"{rule.id} is stored, but {clause}; `agx permissions remove {rule.id}` takes it back")


def read_rule(words: list[str], *, workspace: str | None) -> Rule:
    """Return the rule in the arguments of a command: one with all of it, or one for each word."""
    return parse_rule(words[0] if len(words) == 1 else shlex.join(words), workspace=workspace)


def _remove(arguments: Namespace) -> int:
    with _open_rules() as store:
        removed = store.remove(arguments.rule)
    _note(f"{removed.id} is removed: {visible_line(str(removed), _MAX_RULE_CHARS)}")
    return DONE


def _import(arguments: Namespace) -> int:
    file: Path = arguments.file
    if not file.exists():
        raise InvalidArguments(f"there is no file {str(file)!r}")
    read = read_rule_file(file)
    with _open_rules() as store:
        known = {rule.id for rule in store.list()}
        stored = store.add(read)
        added = [rule for rule in stored if rule.id not in known]
        rules = store.list()
    for rule in added:
        print(_row(rule))
    _advise(added, rules)
    _note(f"added {pluralize(len(added), 'rule')}; {len(stored) - len(added):,} were there already")
    own = FileRules(load_settings().home).path
    if not isinstance(store, FileRules) and own.exists() and own.samefile(file):
        os.replace(own, own.with_name(IMPORTED_FILE))
        _note(f"{str(own)!r} is called {IMPORTED_FILE} now; the rules in the database are used instead")
    return DONE


def _note(text: str) -> None:
    print(f"agx permissions: {text}", file=sys.stderr)
