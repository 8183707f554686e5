"""The launch of a command in its sandbox, and the clean-up once it has ended."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agenticx.errors import ToolError
from agenticx.logs import get_logger
from agenticx.messages import new_id
from agenticx.sandbox.bubblewrap import MAX_MOUNTS, Profile, home_folders, wrap
from agenticx.sandbox.explain import explain_failure
from agenticx.sandbox.landlock import restricted
from agenticx.sandbox.options import SandboxKind
from agenticx.sandbox.proxy import HostProxy, proxied, proxy_environment
from agenticx.settings import home_folder
from agenticx.tools.context import ToolContext
from agenticx.tools.shell.command_reader import CommandReading
from agenticx.tools.shell.file_system_cache import FileSystemCache
from agenticx.tools.shell.lost_moves import find_lost_move
from agenticx.tools.shell.named_paths import examine
from agenticx.tools.shell.protected_files import ProtectedFiles, changed_instructions, find_protected_files
from agenticx.tools.shell.quarantine import move_new_ones, newest_change
from agenticx.tools.shell.sandboxing import RequestedAccess, find_sandbox_for, read_only_profile, writable_profile
from agenticx.tools.unfollowed_paths import open_folder
from agenticx.tools.visible import visible_line

__all__ = ["Launch", "prepare"]

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
class Launch:
    """A prepared command: its arguments, its environment, and the protected files that existed before it.

    - `consented` is the command if it names a protected path, since the user was asked about that, else "".
    - `changes` are the times of the latest changes of protected files, since Landlock does not prevent changes.
    - `temporary` is a folder for temporary files, for this command alone.
    - `proxy` connects the command with the hosts that its call names.
    - `lost` is a folder of the sandbox to which the command moves files; it is removed with the sandbox.
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
        """Return a sentence on how the sandbox may have caused a failure that the output shows, or None.

        `failed` is False if the exit code is 0; a part of the command may have failed nevertheless.
        """
        if self.profile is None or self.kind is None:
            return None
        network, writable = self.profile.network, self.profile.writable
        homes = home_folders()
        return explain_failure(output, kind=self.kind, network=network, writable=writable, homes=homes, failed=failed)

    def clean_up(self) -> Iterator[str]:
        """Remove temporary files once the processes of the command have ended; yield sentences about protected files.

        Blocks.
        """
        if self.before is not None:
            yield from self._compare(self.before, find_protected_files(self.before.workspace))
        changed = [path for path, time in (self.changes or {}).items() if newest_change(path) != time]
        if changed:
            yield f"The command changed {_listed(changed)}, which may decide what runs on this machine: look at it."
        if self.lost is not None:
            yield f"What the command moved to {visible_line(self.lost, _MAX_PATH_CHARS)} is lost: that ended with it."
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)

    def _compare(self, before: ProtectedFiles, after: ProtectedFiles) -> Iterator[str]:
        """Move new files with protected names into quarantine; yield sentences about them and about changed files."""
        yield from self._move_protected(before, after)
        if before.unsearched or after.unsearched:
            yield (
                "The workspace has too many folders, or files that decide what runs on this machine, to protect all of "
                "these: deeper ones are not protected."
            )
        if instructions := changed_instructions(before, after):
            yield f"The command wrote {_listed(instructions)}: instructions that agents follow, look at them."

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
                f"{_listed(list(found.kept))} was created, may decide what runs on this machine, and cannot be moved "
                f"({reason}): look at it."
            )
        if found.moved:
            moved = found.moved
            _log.warning("protected files of a command were moved", count=len(moved), folder=str(self.quarantine))
            yield (
                f"The command created {_listed(moved)}, which may decide what runs on this machine; moved to "
                f"{self.quarantine}. A command that names such a file asks the user, and may then create it."
            )
            if any(path.name == "commondir" and path.parent.parent.name == "worktrees" for path in moved):
                yield (
                    "So the worktree does not work: `git worktree prune` removes what is left of it. "
                    "`git worktree add` needs unsandboxed=true, which asks the user."
                )


def _listed(paths: Sequence[Path]) -> str:
    shown = [visible_line(str(path), _MAX_PATH_CHARS) for path in paths[:_SHOWN_PATHS]]
    return ", ".join(shown) + (f" and {len(paths) - _SHOWN_PATHS:,} more" if len(paths) > _SHOWN_PATHS else "")


def prepare(
    command: str,
    bash: str,
    environment: Mapping[str, str],
    context: ToolContext,
    requested: RequestedAccess,
    *,
    reading: CommandReading,
    proxy: HostProxy | None = None,
) -> Launch:
    """Return the launch of a command in the sandbox that its call gets, with what its permission allows; blocks.

    `reading` is the reading of the command. `proxy` is for the hosts that the call names; it is used where the sandbox
    can enforce them. The workspace is searched for protected files.
    """
    shell = [bash, "-c", "--", command]
    only_reads = context.permitted_risk == "read"
    if only_reads:
        environment = {**environment, "GIT_OPTIONAL_LOCKS": "0"}  # git status would write its index
    status, workspace = find_sandbox_for(context, requested), context.workspace.resolve()
    if status.kind is None:
        return Launch(shell, environment, None)
    before, consented = None, ""
    if only_reads:
        profile = read_only_profile(context, environment)
    else:
        before = find_protected_files(workspace, max_mounts=MAX_MOUNTS if status.kind == "bubblewrap" else None)
        named = examine(command, workspace, context.protected_roots, FileSystemCache())
        consented = command if named.protected is not None else ""
        profile = writable_profile(context, environment, requested, before, consented)
    kept = {name: value for name, value in environment.items() if name not in _OUTSIDE_VARIABLES}
    quarantine = (context.sandbox.home or home_folder()) / "quarantine" / new_id("cmd")
    if status.kind == "bubblewrap":
        shell = _checking_mounts([*profile.pinned, *profile.read_only], profile, bash, shell)
        proxy = proxy if profile.network else None
        if proxy is not None:
            shell, kept = proxied(proxy.descriptor, shell), {**kept, **proxy_environment(requested.hosts)}
        arguments = wrap(status.program, profile, shell)
        lost = find_lost_move(command, reading.runs, workspace)
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
    """Return a command that runs `shell` only if the files that bubblewrap has mounted are those of the workspace."""
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
