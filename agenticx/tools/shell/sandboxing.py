"""Commands of the shell tool in the sandbox: what they get, and the protected files they leave."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from agenticx.errors import InvalidArguments, ToolError
from agenticx.logs import get_logger
from agenticx.messages import new_id
from agenticx.sandbox.bubblewrap import EMPTY_FOLDERS, Profile, home_folders, wrap
from agenticx.sandbox.explain import explain_failure
from agenticx.sandbox.hosts import Host, parse_hosts
from agenticx.sandbox.landlock import restricted
from agenticx.sandbox.options import SandboxKind
from agenticx.sandbox.probe import SandboxStatus, find_sandbox
from agenticx.sandbox.proxy import HostProxy, launcher_files, proxied, proxy_environment
from agenticx.sandbox.toolchains import virtual_environments, visible_home_paths
from agenticx.settings import home_folder
from agenticx.tools.context import ToolContext
from agenticx.tools.shell.command_reader import read_commands
from agenticx.tools.shell.file_system_cache import FileSystemCache
from agenticx.tools.shell.lost_moves import find_lost_move
from agenticx.tools.shell.named_paths import examine
from agenticx.tools.shell.protected_files import (
    ProtectedFiles,
    changed_instructions,
    find_protected_files,
    linked_repository,
    move_new_ones,
    newest_change,
    submodule_repository,
)
from agenticx.tools.shell.unfollowed_paths import open_folder
from agenticx.tools.visible import visible_line

__all__ = [
    "Launch",
    "Wishes",
    "find_sandbox_for",
    "is_contained",
    "prepare",
    "read_only_launcher",
    "sandbox_reasons",
    "sends_to_hosts_only",
]

_SHOWN_PATHS = 5
_SYSTEM_PATH = "/usr/bin:/bin:/run/current-system/sw/bin"
_MAX_PATH_CHARS = 300
# Sockets of other programs, and folders for temporary files, that do not exist in the sandbox.
_OUTSIDE = """
    DBUS_SESSION_BUS_ADDRESS DISPLAY GPG_AGENT_INFO SSH_AUTH_SOCK TEMP TMP TMPDIR WAYLAND_DISPLAY XAUTHORITY
    XDG_RUNTIME_DIR
"""
_OUTSIDE_VARIABLES = frozenset(_OUTSIDE.split())

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Wishes:
    """The permissions beyond the sandbox that a call asks for: all of the network or hosts, or no sandbox at all."""

    network: bool | tuple[Host, ...] = False
    unsandboxed: bool = False

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Return what the arguments of a call ask for; raise `InvalidArguments` for a wrong host."""
        network: bool | list[str] = arguments.get("network", False)
        try:
            hosts = () if isinstance(network, bool) else parse_hosts(network)
        except ValueError as exc:
            raise InvalidArguments(f"'network': {exc}") from exc
        return cls(network if isinstance(network, bool) else hosts or False, arguments.get("unsandboxed", False))

    @property
    def hosts(self) -> tuple[Host, ...]:
        return () if isinstance(self.network, bool) else self.network

    def enforced_by(self, kind: SandboxKind | None) -> Wishes:
        """Return what the call gets in a sandbox of that kind, which may be all of the network instead of hosts."""
        return replace(self, network=True) if self.hosts and kind != "bubblewrap" else self


def find_sandbox_for(context: ToolContext, wishes: Wishes) -> SandboxStatus:
    """Return the sandbox that a call gets; block at the first call of the process."""
    if wishes.unsandboxed:
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


def sandbox_reasons(context: ToolContext, wishes: Wishes, status: SandboxStatus) -> Iterator[str]:
    """Yield sentences about what this sandbox, or none, lets the command do."""
    if status.kind is None:
        if wishes.unsandboxed and find_sandbox_for(context, Wishes()).kind is not None:
            yield "It asks to run outside of the sandbox."
        yield "It runs without a sandbox, with all your permissions, and could read AgenticX's access token."
        if wishes.hosts:
            yield _NOT_ENFORCED.format(hosts=_listed(wishes.hosts))
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
            f"{limits}, {home}, and {_described_network(wishes)}. "
            "Until it has ended, git and other programs that you start in the workspace follow new settings of it, "
            "such as .git/commondir."
        )
    if wishes.hosts and status.kind == "bubblewrap":
        yield "It asks for these hosts: it can send what it reads to them."
        if local := [host for host in wishes.hosts if host.is_local]:
            yield f"It can use servers of this machine or its network: {_listed(local)}."
    elif wishes.network:
        yield "It asks for the network: it can send what it reads, and use the servers of this machine."
        if wishes.hosts:
            yield _NOT_ENFORCED.format(hosts=_listed(wishes.hosts))


_NOT_ENFORCED = "The hosts that the call names ({hosts}) cannot be enforced here: it reaches all others too."


def _described_network(wishes: Wishes) -> str:
    if wishes.hosts:
        return f"reaches these hosts only: {_listed(wishes.hosts)}"
    return "has the network" if wishes.network else "has no network"


def _listed(hosts: Sequence[Host]) -> str:
    return ", ".join(map(str, hosts))


def is_contained(context: ToolContext, wishes: Wishes, kind: SandboxKind | None) -> bool:
    """Return whether the sandbox keeps the command from your files outside of the workspace, and from the network."""
    return not wishes.network and _keeps_from_files(context, kind)


def sends_to_hosts_only(context: ToolContext, wishes: Wishes, kind: SandboxKind | None) -> bool:
    """Return whether the command is contained, except that it can send to the hosts that the call names."""
    return bool(wishes.hosts) and _keeps_from_files(context, kind)


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


def _installation_in(workspace: Path) -> list[Path]:
    return [folder for folder in _installation() if folder.is_relative_to(workspace)]


# --- running ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """A prepared command: its arguments, its environment, and the protected files that existed before it.

    `consented` is the command if it names a protected path, about which the user was asked then, else "". `changes` are
    the times of the latest changes of protected files, which Landlock does not prevent; `temporary` is the folder for
    temporary files that it needs. `proxy` is the one through which it reaches its hosts. `lost` names a folder to
    which it moves files, and which ends with it.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str]
    kind: SandboxKind | None
    profile: Profile | None = None
    before: ProtectedFiles | None = None
    consented: str = ""
    quarantine: Path | None = None
    changes: Mapping[Path, int] | None = None
    temporary: Path | None = None
    proxy: HostProxy | None = None
    lost: str | None = None

    @property
    def own_processes(self) -> int:
        """The processes of the sandbox itself that remain while the command has left any running."""
        return 1 if self.kind == "bubblewrap" else 0

    def explain(self, output: str, *, failed: bool) -> str | None:
        """Return what the sandbox may have to do with a failure that the output of the command shows, or None.

        `failed` is False if its exit code is 0, which may be that of another part of it.
        """
        if self.profile is None or self.kind is None:
            return None
        network, writable = self.profile.network, self.profile.writable
        homes = home_folders()
        return explain_failure(output, kind=self.kind, network=network, writable=writable, homes=homes, failed=failed)

    def clean_up(self) -> Iterator[str]:
        """Remove what the command leaves, once its processes have ended; yield sentences about protected files.

        It blocks.
        """
        if self.before is not None:
            yield from self._compare(self.before, find_protected_files(self.before.workspace))
        changed = [path for path, time in (self.changes or {}).items() if newest_change(path) != time]
        if changed:
            yield f"The command changed {_shown(changed)}, which may decide what runs on this machine: look at it."
        if self.lost is not None:
            yield f"What the command moved to {visible_line(self.lost, _MAX_PATH_CHARS)} is lost: that ended with it."
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)

    def _compare(self, before: ProtectedFiles, after: ProtectedFiles) -> Iterator[str]:
        """Move away what the command created under protected names; yield sentences about that and about changes."""
        yield from self._move_protected(before, after)
        if not before.is_complete:
            yield (
                "The workspace has too many folders to find all files in it that decide what runs on this machine: "
                "deeper ones are not protected."
            )
        if instructions := changed_instructions(before, after):
            yield f"The command wrote {_shown(instructions)}: instructions that agents follow, look at them."

    def _move_protected(self, before: ProtectedFiles, after: ProtectedFiles) -> Iterator[str]:
        if self.quarantine is None:
            return
        found = move_new_ones(
            before,
            after,
            self.consented,
            self.quarantine,
            home=self.quarantine.parents[1],
            were_mounted=self.kind == "bubblewrap",
        )
        if found.kept:
            reason = next(iter(found.kept.values()))
            yield (
                f"{_shown(list(found.kept))} was created, may decide what runs on this machine, and cannot be moved "
                f"({reason}): look at it."
            )
        if found.moved:
            moved = found.moved
            _log.warning("protected files of a command were moved", count=len(moved), folder=str(self.quarantine))
            yield (
                f"The command created {_shown(moved)}, which may decide what runs on this machine; moved to "
                f"{self.quarantine}. A command that names such a file asks the user, and may then create it."
            )
            if any(path.name == "commondir" and path.parent.parent.name == "worktrees" for path in moved):
                yield (
                    "So the worktree does not work: `git worktree prune` removes what is left of it. "
                    "`git worktree add` needs unsandboxed=true, which asks the user."
                )


def _shown(paths: Sequence[Path]) -> str:
    shown = [visible_line(str(path), _MAX_PATH_CHARS) for path in paths[:_SHOWN_PATHS]]
    return ", ".join(shown) + (f" and {len(paths) - _SHOWN_PATHS:,} more" if len(paths) > _SHOWN_PATHS else "")


def prepare(
    command: str,
    bash: str,
    environment: Mapping[str, str],
    context: ToolContext,
    wishes: Wishes,
    proxy: HostProxy | None = None,
) -> Launch:
    """Return the command as it is started: in the sandbox that the call gets, with what its permission allows.

    `proxy` is for the hosts that the call names; it is used where the sandbox can enforce them.

    It blocks: it looks for protected files in the workspace.
    """
    shell = [bash, "-c", "--", command]
    only_reads = context.permitted_risk == "read"
    if only_reads:
        environment = {**environment, "GIT_OPTIONAL_LOCKS": "0"}  # git status would write its index
    status = find_sandbox_for(context, wishes)
    if status.kind is None:
        return Launch(shell, environment, None)
    workspace, private = context.workspace.resolve(), _private_paths(context)
    before, consented, installation = None, "", _installation_in(workspace)
    if not only_reads:
        before = find_protected_files(workspace)
        named = examine(command, workspace, context.protected_roots, FileSystemCache())
        consented = command if named.protected is not None else ""
    profile = Profile(
        workspace=workspace,
        writable=not only_reads,
        network=False if only_reads else wishes.network,
        private=private,
        visible=(*_visible_paths(context, environment, private), *(_repository_of(workspace) if only_reads else ())),
        pinned=tuple(dict.fromkeys((*(before.pinned if before else ()), *_folders_above(installation, workspace)))),
        read_only=(*(before.mountable(consented) if before else ()), *installation),
        programs=launcher_files() if wishes.hosts else (),
    )
    kept = {name: value for name, value in environment.items() if name not in _OUTSIDE_VARIABLES}
    quarantine = (context.sandbox.home or home_folder()) / "quarantine" / new_id("cmd")
    if status.kind == "bubblewrap":
        shell = _checking_mounts([*profile.pinned, *profile.read_only], profile, bash, shell)
        proxy = proxy if profile.network else None
        if proxy is not None:
            shell, kept = proxied(proxy.descriptor, shell), {**kept, **proxy_environment(wishes.hosts)}
        arguments = wrap(status.program, profile, shell)
        lost = find_lost_move(command, read_commands(command).runs, workspace)
        return Launch(arguments, kept, status.kind, profile, before, consented, quarantine, proxy=proxy, lost=lost)
    temporary = Path(os.path.realpath(tempfile.mkdtemp(prefix="agx-command-")))
    return Launch(
        restricted(profile, temporary, shell),
        {**kept, "TMPDIR": str(temporary)},
        status.kind,
        profile,
        before,
        consented,
        quarantine,
        {path: newest_change(path) for path in profile.read_only},
        temporary,
    )


# A command that runs at the same time could replace a path by a link just while bubblewrap mounts what it names.
_CHECK = """
    if [[ $("$1" -c %d:%i -- "${@:4:$3}" 2>&1) != "$2" ]]; then
        echo "agx: files that decide what runs on this machine changed while the command was started; repeat it" >&2
        exit 126
    fi
    exec "${@:4+$3}"
"""


def _checking_mounts(paths: Sequence[Path], profile: Profile, bash: str, shell: list[str]) -> list[str]:
    """Return the command `shell`, started only if the files that bubblewrap has mounted are those of the workspace."""
    identities = dict[Path, str]()
    for path in paths:
        if any(map(path.is_relative_to, profile.private)):  # hidden
            continue
        try:
            with open_folder(path.parent) as folder:
                status = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue
        except OSError as exc:
            raise ToolError(f"{visible_line(str(path), _MAX_PATH_CHARS)} cannot be protected: {exc.strerror}") from exc
        identities[path] = f"{status.st_dev}:{status.st_ino}"
    if not identities:
        return shell
    program = shutil.which("stat", path=_SYSTEM_PATH)
    if program is None:
        raise ToolError("there is no stat in /usr/bin or /bin; install coreutils to run commands in the sandbox")
    expected = "\n".join(identities.values())
    words = [bash, "-c", _CHECK, bash, program, expected, str(len(identities))]
    return [*words, *map(str, identities), *shell]


def _folders_above(paths: Sequence[Path], workspace: Path) -> Iterator[Path]:
    """Yield the folders of the workspace above the paths, which a command could rename, the highest first."""
    for path in paths:
        yield from reversed(
            [folder for folder in path.parents if folder != workspace and folder.is_relative_to(workspace)]
        )


def read_only_launcher(context: ToolContext, environment: Mapping[str, str]) -> list[str]:
    """Return the words that start a program in the sandbox, with the workspace read-only; none without a sandbox."""
    status, workspace = find_sandbox_for(context, Wishes()), context.workspace.resolve()
    if status.kind is None:
        return []
    private = _private_paths(context)
    visible = (*_visible_paths(context, environment, private), *_repository_of(workspace))
    profile = Profile(workspace=workspace, writable=False, private=private, visible=visible)
    if status.kind == "landlock":
        return restricted(profile, None, [])
    program, *options = wrap(status.program, profile, [])
    return [program, "--die-with-parent", *options]


def _repository_of(workspace: Path) -> tuple[Path, ...]:
    """Return the repository of a workspace that is elsewhere, as with `git worktree add` and in a submodule."""
    found = linked_repository(workspace) or submodule_repository(workspace)
    return () if found is None else (found,)


def _visible_paths(context: ToolContext, environment: Mapping[str, str], private: Sequence[Path]) -> tuple[Path, ...]:
    homes = home_folders()
    toolchains = [path for home in homes for path in visible_home_paths(home, context.sandbox.home_paths)]
    return (*toolchains, *virtual_environments(environment.get("PATH", ""), (*homes, *private)))
