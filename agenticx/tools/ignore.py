"""The rules of a project's .gitignore files, to exclude files from searches."""

from __future__ import annotations

from dataclasses import dataclass

from agenticx.errors import ToolError
from agenticx.tools.patterns import LinearPattern, compile_glob

__all__ = ["IgnoreRules"]

_MAX_RULES = 5_000


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: LinearPattern
    base: str
    negated: bool
    folders_only: bool


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules in force in one folder: its parents' rules, then the rules of its own .gitignore.

    Paths are relative to the workspace. As in git, the last rule that matches decides, a rule without a slash
    matches at any depth, and nothing in an ignored folder can be included again.
    """

    rules: tuple[_Rule, ...] = ()

    def with_rules(self, text: str, folder: str) -> IgnoreRules:
        """Return these rules and the rules of a .gitignore in `folder` ("" for the workspace itself).

        Only the last 5,000 distinct lines of a file are used, because each is compiled and tried for each path.
        """
        base = f"{folder}/" if folder else ""
        # Of equal lines only the last one has an effect.
        lines = list(dict.fromkeys(reversed(text.splitlines())))[:_MAX_RULES]
        parsed = (_parse_rule(line, base) for line in reversed(lines))
        return IgnoreRules((*self.rules, *(rule for rule in parsed if rule is not None)))

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Return whether the file or folder at `path` is excluded."""
        for rule in reversed(self.rules):
            if rule.folders_only and not is_folder:
                continue
            if path.startswith(rule.base) and rule.pattern.found_in(path[len(rule.base) :]):
                return not rule.negated
        return False


def _parse_rule(line: str, base: str) -> _Rule | None:
    line = line.rstrip()
    if not line or line.startswith("#"):
        return None
    is_negated = line.startswith("!")
    glob = line[1:] if is_negated else line
    folders_only = glob.endswith("/")
    glob = glob.rstrip("/")
    if not glob:
        return None
    anchored = "/" in glob
    try:
        pattern = compile_glob(glob.lstrip("/") if anchored else f"**/{glob}")
    except ToolError:  # a rule that is no valid glob has no effect
        return None
    return _Rule(pattern, base, is_negated, folders_only)
