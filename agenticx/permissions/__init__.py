"""Permissions of calls: the user's rules, the rules that a confirmation can store, and the verdict about a call.

    verdict         allow, ask or deny: the one rule for asking, with the permission modes
    rules           a rule of the user, and the call that it looks at
    path_globs      globs of paths
    path_rules      rules about paths: what they match in a call
    command_rules   rules about shell commands: what they match in a command
    user_texts      the check whether the user wrote what a call sends
    kinds           kinds of commands, by their first words, such as `git commit`
    offers          the rules that a confirmation can store
    advice          warnings about rules without an effect, or with another effect than it seems
    explain         the verdict in sentences, for each part of a command
    rule_stores     where rules are kept
    trusted_files   the contents of AGENTS.md files that the user trusts

All but `rule_stores` and `trusted_files` are pure functions of a call and its assessment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from agenticx.permissions.rules import Call, Rule, parse_rule
    from agenticx.permissions.verdict import PermissionMode, Verdict, decide

__all__ = ["Call", "PermissionMode", "Rule", "Verdict", "decide", "parse_rule"]

__getattr__, __dir__ = lazy_imports(
    __name__,
    {
        "agenticx.permissions.rules": ["Call", "Rule", "parse_rule"],
        "agenticx.permissions.verdict": ["PermissionMode", "Verdict", "decide"],
    },
)
