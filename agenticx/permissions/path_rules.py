"""Ask and deny rules about paths: the check whether a call reaches a file that a rule is about.

The paths of edits and reads are known. In a command, the words are compared with the rule's glob; a folder that the
command may read in whole, or a part that cannot be read, makes the answer "unknown".
"""

from __future__ import annotations

from agenticx.permissions.command_rules import Match
from agenticx.permissions.path_globs import may_match_below, path_matches
from agenticx.permissions.rules import EDITS, Call, Rule
from agenticx.tools.base import NamedPath

__all__ = ["find_path"]

_ANY_NAME = "\0"


def find_path(rule: Rule, call: Call) -> Match:
    """Return whether a call reaches a file that the rule's path matches."""
    assert rule.path is not None
    assessment = call.assessment
    if assessment.shell is not None:
        return _find_in_command(rule, call)
    if any(path_matches(rule.path, path) for path in assessment.paths):
        return "yes"
    matches = {_match_folder(rule.path, folder, levels) for folder, levels in assessment.folders}
    return "yes" if "yes" in matches else "unknown" if "unknown" in matches else "no"


def _find_in_command(rule: Rule, call: Call) -> Match:
    shell = call.assessment.shell
    assert shell is not None
    is_edit = rule.tool == EDITS
    if is_edit and call.assessment.risk == "read":
        return "no"
    matches = {_match_word(rule, path) for path in shell.paths or () if not (is_edit and path.is_changed is False)}
    if "yes" in matches:
        return "yes"
    return "unknown" if shell.paths is None or "unknown" in matches else "no"


def _match_word(rule: Rule, named: NamedPath) -> Match:
    assert rule.path is not None
    match = "yes" if path_matches(rule.path, named.path) else "no"
    if match == "no" and (named.is_folder or named.path == rule.path.removesuffix("/**")):
        match = _match_folder(rule.path, named.path, None)
    is_sure = named.is_sure and (named.is_changed or rule.tool != EDITS)
    return "unknown" if match == "yes" and not is_sure else match


def _match_folder(glob: str, folder: str, levels: int | None) -> Match:
    """Return whether a glob matches all files of a folder, or may match some, down to this many levels of folders."""
    if path_matches(glob, _ANY_NAME if folder == "." else f"{folder}/{_ANY_NAME}"):
        return "yes"
    return "unknown" if may_match_below(glob, "" if folder == "." else folder, levels) else "no"
