"""The sandbox of a command: the kind that a call gets, what it lets the command do, and its profiles."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from agenticx.errors import InvalidArguments
from agenticx.sandbox.bubblewrap import EMPTY_FOLDERS, Profile, home_folders, wrap
from agenticx.sandbox.hosts import Host, parse_hosts
from agenticx.sandbox.landlock import restricted
from agenticx.sandbox.options import SandboxKind
from agenticx.sandbox.probe import SandboxStatus, find_sandbox
from agenticx.sandbox.proxy import launcher_files
from agenticx.sandbox.toolchains import virtual_environments, visible_home_paths
from agenticx.tools.context import ToolContext
from agenticx.tools.shell.protected_files import ProtectedFiles, linked_repository, submodule_repository

__all__ = [
    "RequestedAccess",
    "find_sandbox_for",
    "is_contained",
    "read_only_launcher",
    "read_only_profile",
    "sandbox_reasons",
    "sends_to_hosts_only",
    "writable_profile",
]


@dataclass(frozen=True, slots=True)
class RequestedAccess:
    """The access that a call asks for beyond the sandbox: the whole network, some hosts, or no sandbox at all."""

    network: bool | tuple[Host, ...] = False
    unsandboxed: bool = False

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Return the access in the arguments of a call; raise `InvalidArguments` for a wrong host."""
        network: bool | list[str] = arguments.get("network", False)
        try:
            hosts = () if isinstance(network, bool) else parse_hosts(network)
        except ValueError as exc:
            raise InvalidArguments(f"'network': {exc}") from exc
        return cls(network if isinstance(network, bool) else hosts or False, arguments.get("unsandboxed", False))

    @property
    def hosts(self) -> tuple[Host, ...]:
        return () if isinstance(self.network, bool) else self.network

    def enforced_by(self, kind: SandboxKind | None) -> RequestedAccess:
        """Return the access in a sandbox of that kind, which may allow the whole network instead of hosts."""
        return replace(self, network=True) if self.hosts and kind != "bubblewrap" else self


def find_sandbox_for(context: ToolContext, requested: RequestedAccess) -> SandboxStatus:
    """Return the sandbox that a call gets; block at the first call of the process."""
    if requested.unsandboxed:
        return SandboxStatus(None, "The call asks to run without the sandbox.")
    status, workspace = find_sandbox(context.sandbox), context.workspace.resolve()
    if status.kind is None:
        return status
    if workspace == Path("/"):
        return SandboxStatus(None, "The workspace is the root of the file system.")
    private = _private_paths(context)
    if workspace in private:
        return SandboxStatus(None, "The workspace is AgenticX's own folder.")
    if any(map(workspace.is_relative_to, _installation())):
        return SandboxStatus(None, "The workspace is in the installation of AgenticX.")
    if status.kind == "landlock" and any(path.is_relative_to(workspace) for path in (*private, *_installation())):
        return SandboxStatus(None, "Landlock cannot protect AgenticX's own files, which are in the workspace.")
    return status


def sandbox_reasons(context: ToolContext, requested: RequestedAccess, status: SandboxStatus) -> Iterator[str]:
    """Yield sentences about what this sandbox, or none, lets the command do."""
    if status.kind is None:
        if requested.unsandboxed and find_sandbox_for(context, RequestedAccess()).kind is not None:
            yield "It asks to run outside of the sandbox."
        yield "It runs without a sandbox, with all your permissions, and could read AgenticX's access token."
        if requested.hosts:
            yield _NOT_ENFORCED.format(hosts=_listed(requested.hosts))
        return
    home = (
        "sees your home folder only as far as toolchains are in it"
        if _hides_home(context.workspace.resolve())
        else "sees your home folder, which the workspace includes"
    )
    limits = f"It runs in a sandbox ({status.kind}): it can change files of the workspace only"
    if status.kind == "landlock":
        yield f"{limits} and {home}. It is not kept from {status.gaps}."
    else:
        yield (
            f"{limits}, {home}, and {_described_network(requested)}. "
            "Until it has ended, git and other programs that you start in the workspace follow new settings of it, "
            "such as .git/commondir."
        )
    if requested.hosts and status.kind == "bubblewrap":
        yield "It asks for these hosts: it can send what it reads to them."
        if local := [host for host in requested.hosts if host.is_local]:
            yield f"It can use servers of this machine or its network: {_listed(local)}."
    elif requested.network:
        yield "It asks for the network: it can send what it reads, and use the servers of this machine."
        if requested.hosts:
            yield _NOT_ENFORCED.format(hosts=_listed(requested.hosts))


_NOT_ENFORCED = "The hosts that the call names ({hosts}) cannot be enforced here: it reaches all others too."


def _described_network(requested: RequestedAccess) -> str:
    if requested.hosts:
        return f"reaches these hosts only: {_listed(requested.hosts)}"
    return "has the network" if requested.network else "has no network"


def _listed(hosts: Sequence[Host]) -> str:
    return ", ".join(map(str, hosts))


def is_contained(context: ToolContext, requested: RequestedAccess, kind: SandboxKind | None) -> bool:
    """Return whether the sandbox keeps the command from your files outside of the workspace, and from the network."""
    return not requested.network and _keeps_from_files(context, kind)


def sends_to_hosts_only(context: ToolContext, requested: RequestedAccess, kind: SandboxKind | None) -> bool:
    """Return whether the command is contained, except that it can send to the hosts that the call names."""
    return bool(requested.hosts) and _keeps_from_files(context, kind)


def _keeps_from_files(context: ToolContext, kind: SandboxKind | None) -> bool:
    return kind == "bubblewrap" and _hides_home(context.workspace.resolve())


def _hides_home(workspace: Path) -> bool:
    hidden = [*home_folders(), *map(Path, EMPTY_FOLDERS)]
    return bool(home_folders()) and not any(folder.is_relative_to(workspace) for folder in hidden)


def _private_paths(context: ToolContext) -> tuple[Path, ...]:
    return tuple(Path(os.path.realpath(root)) for root in context.protected_roots)


@functools.cache
def _installation() -> tuple[Path, ...]:
    """Return the folders of the code that runs outside of the sandbox: AgenticX, and its virtual environment."""
    package = Path(__file__).parents[2]
    folders = [package, package.with_name("studio")]
    if sys.prefix != sys.base_prefix:
        folders.append(Path(sys.prefix))
    return tuple(Path(os.path.realpath(folder)) for folder in folders if folder.is_dir())


# --- profiles ---------------------------------------------------------------------------------------------------------


def read_only_profile(context: ToolContext, environment: Mapping[str, str]) -> Profile:
    """Return the profile of a command that can change nothing and reach no host; it sees a repository elsewhere too."""
    workspace, private = context.workspace.resolve(), _private_paths(context)
    visible = (*_visible_paths(context, environment, private), *_repository_of(workspace))
    return Profile(workspace=workspace, writable=False, private=private, visible=visible)


def writable_profile(
    context: ToolContext,
    environment: Mapping[str, str],
    requested: RequestedAccess,
    protected: ProtectedFiles,
    command: str,
) -> Profile:
    """Return the profile of a command that can change the workspace, except for its protected files.

    `command` is the text by which the user agreed to the change of the files that it names, else "".
    """
    workspace, private = context.workspace.resolve(), _private_paths(context)
    installation = [folder for folder in _installation() if folder.is_relative_to(workspace)]
    return Profile(
        workspace=workspace,
        writable=True,
        network=requested.network,
        private=private,
        visible=_visible_paths(context, environment, private),
        pinned=tuple(dict.fromkeys((*protected.pinned, *_folders_above(installation, workspace)))),
        read_only=(*protected.mountable(command), *installation),
        programs=launcher_files() if requested.hosts else (),
    )


def _folders_above(paths: Sequence[Path], workspace: Path) -> Iterator[Path]:
    """Yield the parent folders of the paths in the workspace, which a command could rename, the highest first."""
    for path in paths:
        yield from reversed(
            [folder for folder in path.parents if folder != workspace and folder.is_relative_to(workspace)]
        )


def read_only_launcher(context: ToolContext, environment: Mapping[str, str]) -> list[str]:
    """Return the words that start a program in the sandbox, with the workspace read-only; none without a sandbox."""
    status = find_sandbox_for(context, RequestedAccess())
    if status.kind is None:
        return []
    profile = read_only_profile(context, environment)
    if status.kind == "landlock":
        return restricted(profile, None, [])
    program, *options = wrap(status.program, profile, [])
    return [program, "--die-with-parent", *options]


def _repository_of(workspace: Path) -> tuple[Path, ...]:
    """Return the repository of a workspace that lies elsewhere, as for a linked worktree and a submodule."""
    found = linked_repository(workspace) or submodule_repository(workspace)
    return () if found is None else (found,)


def _visible_paths(context: ToolContext, environment: Mapping[str, str], private: Sequence[Path]) -> tuple[Path, ...]:
    homes = home_folders()
    toolchains = [path for home in homes for path in visible_home_paths(home, context.sandbox.home_paths)]
    return (*toolchains, *virtual_environments(environment.get("PATH", ""), (*homes, *private)))
