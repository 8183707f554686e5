"""Rules of the user: calls that are allowed without a question, asked about, or denied.

A rule names a tool and, if it is not about all of its calls, what they must have: a path, a command, a host, a server.
`RULE` on the command line is `allow|ask|deny TOOL [path=GLOB] [command="WORDS"] [host=H] [server=S]
[network=true|HOSTS] [exact=true]`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from agenticx.errors import InvalidArguments
from agenticx.permissions.path_globs import path_matches
from agenticx.sandbox.hosts import Host, overlap, parse_hosts
from agenticx.tools.base import Assessment

__all__ = [
    "ANY_TOOL",
    "EDITS",
    "Call",
    "CallPart",
    "Rule",
    "RuleOrigin",
    "RuleScope",
    "parse_rule",
    "rule_from",
    "rule_or_none",
    "with_scope",
]

RuleScope = Literal["session", "workspace", "user"]
RuleOrigin = Literal["answer", "command", "http"]

ANY_TOOL = "*"
"""The `tool` of a rule about all tools; such a rule can ask or deny, but not allow."""
EDITS = "edit"
"""The tool of a rule about all tools that change files of the workspace."""

_MAX_TEXT = 4_000
_TOOL = re.compile(r"\*|[A-Za-z0-9_.-]{1,128}")
_HOST = re.compile(r"(?:\*\.)?[A-Za-z0-9_:.\[\]-]{1,253}")
_MAX_WILDCARDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call as rules see it: the tool, its arguments, the tool's assessment, and the folder in which it works.

    `digest` is the digest of a confirmation of the call, "" if no rule needs it; with a digest the arguments are JSON.
    """

    tool: str
    assessment: Assessment
    arguments: Mapping[str, Any]
    workspace: Path
    digest: str = ""

    def parts(self) -> Iterator[CallPart]:
        """Yield each pair of a file and a host of the call; at least one part, `(None, None)` without either."""
        return product(self.assessment.paths or (None,), self.assessment.hosts or (None,))


CallPart = tuple[str | None, str | None]
"""A file and a host of a call, None for a call without one."""


class Rule(BaseModel):
    """A rule; `scope` says for how long or where it holds: one session, one workspace, or everywhere.

    - `path` is a glob of files of the workspace, relative to it: `*` matches within a name, `**` also folders.
    - `command` has the first words of a shell command: `git commit` matches `git commit -m x`. With `exact` it is the
      whole text of the command.
    - With `exact` and a `digest` the rule matches one call of another tool: with these `arguments`, and with everything
      else that the tool included in the digest.
    - `host` is the host of an address; `*.example.com` matches all its subdomains. `server` is the MCP server of a
      tool.
    - `network` of an allow rule is true if a command may use the network, or lists the hosts that it may reach, such as
      pypi.org, *.example.com and example.com:8443. In an ask or deny rule it matches commands that may reach the
      network, or one of these hosts.
    - `sandboxed` is the sandbox of the commands that it allows; the rule does not hold in a weaker one or without one.
    - `workspace` is the absolute path of the folder in which a rule of scope `workspace` holds.
    - `origin` says how the rule was made: by an answer to a confirmation, by `agx permissions add`, or over HTTP; None
      for a rule in a file that a person has written.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field("", max_length=100, pattern=r"^[A-Za-z0-9_.-]*$")
    decision: Literal["allow", "ask", "deny"]
    tool: str
    path: str | None = Field(None, min_length=1, max_length=_MAX_TEXT)
    command: str | None = Field(None, min_length=1, max_length=100_000)
    host: str | None = None
    server: str | None = Field(None, min_length=1, max_length=200)
    network: Literal[True] | list[str] | None = None
    sandboxed: Literal["bubblewrap", "landlock"] | None = None
    arguments: dict[str, Any] | None = None
    digest: str | None = Field(None, max_length=64)
    exact: Literal[True] | None = None
    scope: RuleScope = "workspace"
    workspace: str | None = None
    origin: RuleOrigin | None = None
    created_at: str = Field("", max_length=40)

    @field_validator("tool")
    @classmethod
    def _check_tool(cls, tool: str) -> str:
        if not _TOOL.fullmatch(tool):
            raise ValueError(f"{tool[:50]!r} is no name of a tool; {EDITS} stands for all that change files, * for all")
        return tool

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str | None) -> str | None:
        if path is None:
            return None
        if path.startswith(("/", "~")) or ".." in path.split("/"):
            raise ValueError("a path is a glob relative to the workspace, such as src/** or *.md")
        if path.count("*") + path.count("?") > _MAX_WILDCARDS:
            raise ValueError(f"a path has at most {_MAX_WILDCARDS} of * and ?")
        return path.removeprefix("./")

    @field_validator("host")
    @classmethod
    def _check_host(cls, host: str | None) -> str | None:
        if host is not None and not _HOST.fullmatch(host):
            raise ValueError(f"{host[:50]!r} is no host; give one without scheme and path, such as example.com")
        return None if host is None else host.lower()

    @field_validator("network")
    @classmethod
    def _check_network(cls, network: Literal[True] | list[str] | None) -> Literal[True] | list[str] | None:
        if network is None or network is True:
            return network
        if not network or network == ["false"]:
            raise ValueError("it is true or a list of hosts; a rule about commands without the network has none")
        return [str(host) for host in parse_hosts(network)]

    @model_validator(mode="after")
    def _check_fields(self) -> Rule:
        if self.decision == "allow" and self.tool == ANY_TOOL:
            raise ValueError("a rule that allows names its tool")
        if self.workspace is not None and self.scope != "workspace":
            raise ValueError("only a rule of scope workspace has a workspace")
        if self.workspace is not None and not self.workspace.startswith("/"):
            raise ValueError("the workspace of a rule is an absolute path")
        if (self.arguments is None) != (self.digest is None) or (self.digest is not None and not self.exact):
            raise ValueError("arguments and their digest are those of an exact rule")
        if self.path is not None and self.tool == "bash_exec" and self.decision == "allow":
            raise ValueError("a rule that allows bash_exec has a command, not a path")
        if self.exact and (self.command is None) == (self.digest is None):
            raise ValueError("an exact rule has a command, or arguments and their digest")
        return self

    @property
    def words(self) -> tuple[str, ...]:
        """The first words of the commands that the rule matches, empty for a rule without `command`."""
        return () if self.command is None or self.exact else tuple(self.command.split())

    @property
    def network_hosts(self) -> tuple[Host, ...]:
        """The hosts of `network`, empty for a rule without any, and for one about all of the network."""
        return _parsed_hosts(tuple(self.network)) if isinstance(self.network, list) else ()

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are set, as JSON."""
        unset = {name for name in ("id", "created_at") if not getattr(self, name)}
        return self.model_dump(exclude_none=True, exclude=unset, mode="json")

    def holds_in(self, workspace: Path) -> bool:
        """Return whether the rule holds for calls that work in a folder."""
        return self.workspace is None or self.workspace == str(workspace)

    def is_about(self, call: Call) -> bool:
        """Return whether the rule is about a call, by its tool, hosts and server.

        A rule is about a call with several files or hosts if it matches one of them; allow rules must cover all of them
        together. For the path of an ask or deny rule see `path_rules`.
        """
        assessment = call.assessment
        if self.tool == EDITS:
            may_change = self.decision != "allow" and self.path is not None and assessment.shell is not None
            if not may_change and (assessment.risk != "write" or not assessment.paths):
                return False
            if self.decision == "allow" and assessment.elsewhere:
                return False
        elif self.tool not in (ANY_TOOL, call.tool):
            return False
        if self.server is not None and self.server != assessment.server:
            return False
        if self.network is not None and self.decision != "allow" and not self._may_reach_network(assessment):
            return False
        if self.decision == "allow":
            if not any(self.covers(part) for part in call.parts()):
                return False
        elif self.host is not None and not any(_hosts_overlap(self.host, host) for host in assessment.hosts):
            return False
        return self.digest is None or self.digest == call.digest

    def covers(self, part: CallPart) -> bool:
        """Return whether this allow rule's path and host match a part of a call."""
        path, host = part
        return (self.path is None or (path is not None and path_matches(self.path, path))) and (
            self.host is None or (host is not None and _host_matches(self.host, host))
        )

    def covers_all(self, call: Call) -> bool:
        """Return whether this allow rule covers all files and hosts of a call that it is about."""
        return all(map(self.covers, call.parts()))

    def _may_reach_network(self, assessment: Assessment) -> bool:
        """Return whether a command may reach the network, or a host, of this ask or deny rule."""
        command = assessment.shell
        if command is None:
            return False
        if command.network is True or command.unsandboxed or assessment.sandboxed is False:
            return True
        return bool(command.network) and (self.network is True or overlap(self.network_hosts, command.network or ()))

    def __str__(self) -> str:
        """Return the rule as the command line takes it.

        >>> str(Rule(decision="allow", tool="bash_exec", command="git commit", scope="user"))
        'allow bash_exec command="git commit"'
        """
        parts = [self.decision, self.tool]
        for name in ("path", "command", "host", "server"):
            if (value := getattr(self, name)) is not None:
                parts.append(f"{name}={_quoted(value)}")
        if self.network is not None:
            parts.append(f"network={'true' if self.network is True else ','.join(self.network)}")
        if self.arguments is not None:
            parts.append("with exactly these arguments")
        elif self.exact:
            parts.append("exact=true")
        return " ".join(parts)


def with_scope(rule: Rule, scope: RuleScope, workspace: str | None) -> Rule:
    """Return an unstored rule with another scope; `workspace` is used for the scope `workspace` only."""
    return rule.model_copy(update={"scope": scope, "workspace": workspace if scope == "workspace" else None})


def _quoted(value: str) -> str:
    """Return a value in double quotes if it needs them."""
    if re.fullmatch(r"[A-Za-z0-9_./:*?@%+,-]+", value):
        return value
    return '"' + re.sub(r'(["\\$`])', r"\\\1", value) + '"'


def parse_rule(words: str, *, workspace: str | None = None) -> Rule:
    r"""Return the rule in a text; a rule without `workspace` holds everywhere.

    Raises `InvalidArguments` with the correct form.

    >>> parse_rule('allow bash_exec command="git commit"').words
    ('git', 'commit')
    """
    try:
        parts = shlex.split(words)
    except ValueError as exc:
        raise InvalidArguments(f"the rule cannot be read: {exc}; {_FORM}") from exc
    if len(parts) < 2 or parts[0] not in ("allow", "ask", "deny"):
        raise InvalidArguments(f"a rule begins with allow, ask or deny and a tool; {_FORM}")
    fields: dict[str, Any] = {"decision": parts[0], "tool": parts[1]}
    for part in parts[2:]:
        name, equals, value = part.partition("=")
        if not equals or name not in ("path", "command", "host", "server", "network", "exact") or name in fields:
            raise InvalidArguments(f"{part[:100]!r} is no part of a rule; {_FORM}")
        fields[name] = _value(name, value)
    return rule_from({**fields, "scope": "user"} if workspace is None else {**fields, "workspace": workspace})


def _value(name: str, value: str) -> Any:
    match name:
        case "exact":
            return True if value == "true" else value
        case "network":
            return True if value == "true" else value.split(",")
        case _:
            return value


_FORM = (
    'write it as: allow|ask|deny TOOL [path=GLOB] [command="WORDS"] [host=HOST] [server=NAME] [network=true|HOSTS]'
    ' [exact=true], for example: allow bash_exec command="git commit"'
)


def rule_from(fields: Mapping[str, Any]) -> Rule:
    """Return a rule of its fields; raises `InvalidArguments` that names the field and says what would be right."""
    try:
        return Rule.model_validate(fields)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            problem = f"there is no such key; keys are {', '.join(Rule.model_fields)}"
            raise InvalidArguments(f"the rule is wrong in {place[:100]}: {problem}") from exc
        raise InvalidArguments(
            f"the rule is wrong{f' in {place}' if place else ''}: {_sentence(first['msg'])}"
        ) from exc


def rule_or_none(**fields: Any) -> Rule | None:
    """Return an allow rule of scope session, None if a field is not valid, for example a path that begins with ~."""
    try:
        return Rule(decision="allow", scope="session", **fields)
    except ValidationError:
        return None


def _sentence(message: str) -> str:
    return message.removeprefix("Value error, ")


@lru_cache(maxsize=2048)
def _parsed_hosts(texts: tuple[str, ...]) -> tuple[Host, ...]:
    return parse_hosts(texts)


def _host_matches(pattern: str, host: str) -> bool:
    host = host.lower()
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def _hosts_overlap(pattern: str, host: str) -> bool:
    """Return whether one server may match both; `host` may have a `*` too."""
    return _host_matches(pattern, host) or _host_matches(host.lower(), pattern)
