"""Permissions of calls: the rules of the user, the kinds of calls that a yes can cover, and the verdict.

    verdict         allow, ask or deny: the one rule for asking, with the permission modes
    rules           a rule of the user, and the call that it looks at
    command_rules   rules about shell commands: what they match in one
    said            whether the user wrote what a call sends
    kinds           the rules that a yes can store
    advice          rules that cannot have an effect, or mean something else than they seem to
    explain         the verdict in sentences, for each part of a command
    rule_stores     where rules are kept
    trusted_files   the contents of AGENTS.md files that the user trusts

All but `rule_stores` and `trusted_files` are pure functions of a call and its assessment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_names import lazy_names

if TYPE_CHECKING:
    from agenticx.permissions.rules import Call, Rule, parse_rule
    from agenticx.permissions.verdict import PermissionMode, Verdict, decide

__all__ = ["Call", "PermissionMode", "Rule", "Verdict", "decide", "parse_rule"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "agenticx.permissions.rules": ["Call", "Rule", "parse_rule"],
        "agenticx.permissions.verdict": ["PermissionMode", "Verdict", "decide"],
    },
)
