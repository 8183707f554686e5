"""Protected paths: files that control execution or permissions, never changed without asking the user.

Writing a shell start-up file, a git hook or an editor's task runs code later, outside every confirm gate; writing
AgenticX's own settings changes the gate. Files that a user runs knowingly, like a Makefile, are not protected; files
that common tools run automatically are: the files of environment and hook managers, CI systems and other agents.

There are two lists. Settings are protected wherever they are named, also in a shell command. Instruction files of
agents (`CLAUDE.md`, `.cursorrules`) and files that ordinary commands often name (`conftest.py`) are protected only
against writing by the file tools; a shell command may name them, even after `>`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from agenticx.tools.visible import visible, without_invisible

__all__ = [
    "PROTECTED_AFFIXES",
    "PROTECTED_NAMES",
    "PROTECTED_PAIRS",
    "changes_bare_repository",
    "is_instruction",
    "is_within",
    "protected_part",
    "protected_settings_part",
    "protection_reason",
]

# Folders of version control, hook managers, editors, environments, package managers and CI systems.
_FOLDERS = """
    .appveyor .aws .azure-pipelines .buildkite .builds .bundle .cargo .circleci .codesandbox .devcontainer .direnv
    .docker .drone .emacs.d .fleet .forgejo .git .gitea .githooks .gitlab .gnupg .gradle .harness .helix .hg .husky
    .idea .idx .ipython .jj .jupyter .kube .lefthook .lefthook-local .m2 .mise .mvn .nvim .password-store .run
    .semaphore .ssh .svn .teamcity .tekton .vim .vs .vscode .woodpecker .yarn .zed .zuul.d mise-tasks
"""
# Folders of agents: they hold instructions, but also settings, hooks and servers to start.
_AGENT_FOLDERS = """
    .agenticx .aiassistant .amazonq .amp .augment .claude .cline .codebuddy .codeium .codex .continue .copilot .crush
    .cursor .devin .factory .gemini .goose .iflow .junie .kilocode .kiro .lingma .opencode .openhands .qoder .qwen .roo
    .tabnine .trae .windsurf .zencoder
"""
_START_UP_FILES = """
    .ackrc .bash_aliases .bash_login .bash_logout .bash_profile .bashrc .bazelrc .bunfig.toml .byebugrc .condarc .cshrc
    .curlrc .dir-locals-2.el .dir-locals.el .direnvrc .emacs .env .envrc .exrc .flaskenv .gdbearlyinit .gdbinit .gemrc
    .git-credentials .gitattributes .gitconfig .gitmodules .gvimrc .hgrc .ideavimrc .inputrc .irbrc .julia .kshrc
    .latexmkrc .lazy.lua .lesskey .lfsconfig .lldbinit .login .lvimrc .mailcap .mise.toml .miserc.toml .netrc .npmrc
    .nvim.lua .nvimrc .octaverc .pam_environment .pdbrc .pdbrc.py .perltidyrc .pgpass .pnp.cjs .pnp.js .pnp.loader.mjs
    .pnpmfile.cjs .pnpmfile.mjs .profile .pryrc .psqlrc .pylintrc .pypirc .pythonrc .pythonrc.py .pythonstartup .rdbgrc
    .rdbgrc.rb .renviron .rprofile .rtx.toml .rvmrc .screenrc .selected_editor .sqliterc .tcshrc .tmux.conf
    .tmux.conf.local .tool-versions .vimrc .wezterm.lua .wgetrc .xinitrc .xmodmap .xprofile .xresources .xsession
    .xsessionrc .yarnrc .yarnrc.yml .zlogin .zlogout .zprofile .zshenv .zshrc bunfig.toml mise.toml
"""
_HOOK_AND_CI_FILES = """
    .appveyor.yml .build.yml .captainhook.json .cirrus.star .cirrus.yml .devcontainer.json .drone.jsonnet .drone.star
    .drone.yaml .drone.yml .gitlab-ci.yml .gitpod.dockerfile .gitpod.yml .huskyrc .huskyrc.js .huskyrc.json
    .lefthook-local.json .lefthook-local.jsonc .lefthook-local.toml .lefthook-local.yaml .lefthook-local.yml
    .lefthook.json .lefthook.jsonc .lefthook.toml .lefthook.yaml .lefthook.yml .lintstagedrc .overcommit.yml
    .pre-commit-config.yaml .pre-commit-config.yml .replit .travis.yml .woodpecker.yaml .woodpecker.yml .zuul.yaml
    captainhook.json hk.pkl lefthook-local.json lefthook-local.jsonc lefthook-local.toml lefthook-local.yaml
    lefthook-local.yml lefthook.json lefthook.jsonc lefthook.toml lefthook.yaml lefthook.yml prek.toml
    simple-git-hooks.json
"""
_AGENT_FILES = """
    .aider.conf.yml .aider.model.metadata.json .aider.model.settings.yml .claude.json .crush.json .kilocodemodes
    .mcp.json .roomodes crush.json mcp.json opencode.json opencode.jsonc
"""
PROTECTED_NAMES = frozenset(
    f"{_FOLDERS} {_AGENT_FOLDERS} {_START_UP_FILES} {_HOOK_AND_CI_FILES} {_AGENT_FILES}".split()
)
# A name with a slash is a pair of adjacent parts of a path.
_PAIRS = """
    .config/agenticx .config/autostart .config/crush .config/fish .config/git .config/goose .config/mise .config/nvim
    .config/opencode .config/systemd .config/tmux .config/wezterm .config/zed .github/actions .github/hooks
    .github/workflows .local/bin mise/config.toml
"""
PROTECTED_PAIRS = tuple((parent, child) for parent, _, child in (pair.partition("/") for pair in _PAIRS.split()))
_SETTINGS = PROTECTED_NAMES | frozenset(_PAIRS.split())
# Prefixes and suffixes of names, as of `.env.local` and `mise.production.toml`.
PROTECTED_AFFIXES = (
    (".env.", ""),
    (".lintstagedrc.", ""),
    (".lldbinit-", ""),
    (".mise.", ".toml"),
    (".simple-git-hooks.", ""),
    ("", ".code-workspace"),
    ("mise.", ".toml"),
)
# Run when Python, a test or a project's tools start. Ordinary commands often name them, so only writing is protected.
_WRITE_PROTECTED_NAMES = """
    .config .local .tox .venv appveyor.yml azure-pipelines.yml bitbucket-pipelines.yml buildspec.yml cloudbuild.yaml
    cloudbuild.yml codefresh.yml conftest.py jenkinsfile node_modules pip.conf screwdriver.yaml sitecustomize.py
    usercustomize.py venv wercker.yml zuul.yaml
"""
# Instructions that other agents read at the start of each of their sessions.
_INSTRUCTION_NAMES = """
    .agent .agents .airules .augment-guidelines .clinerules .continuerules .cursorrules .goosehints .kilocoderules
    .roorules .rules .windsurfrules agent.md agents.local.md agents.md agents.override.md claude.local.md claude.md
    copilot-instructions.md crush.md gemini.md qwen.md warp.md
"""
_INSTRUCTIONS = frozenset(
    {*_INSTRUCTION_NAMES.split(), ".github/agents", ".github/chatmodes", ".github/instructions", ".github/prompts"}
)
_INSTRUCTION_AFFIXES = (("", ".instructions.md"), (".clinerules-", ""), (".roorules-", ""))
_WRITE_PROTECTED = _INSTRUCTIONS | frozenset(_WRITE_PROTECTED_NAMES.split())
_WRITE_PROTECTED_AFFIXES = (("", ".pth"), *_INSTRUCTION_AFFIXES)
_REPOSITORY_NAMES = "commondir config config.worktree hooks info modules objects packed-refs refs worktrees"
_REPOSITORY_PARTS = frozenset(_REPOSITORY_NAMES.split())


def protected_part(path: Path, roots: Iterable[Path] = ()) -> str | None:
    """Return the part of `path` that protects it against writing, or None. Case is ignored."""
    parts = _normalized(path.parts)
    named = _first_match(parts, _SETTINGS, PROTECTED_AFFIXES) or _first_match(
        parts, _WRITE_PROTECTED, _WRITE_PROTECTED_AFFIXES
    )
    return named or next((str(root) for root in roots if is_within(path, root)), None)


def protection_reason(part: str) -> str:
    """Return a sentence with the reason why `part`, a result of `protected_part`, is protected."""
    if is_instruction(part.split("/")):
        return f"{visible(part)} contains instructions for agents."
    return f"{visible(part)} decides what runs on this machine or which calls need approval."


def is_instruction(parts: Iterable[str]) -> bool:
    """Return whether a path is, or is in, a file or folder of instructions for agents, such as `AGENTS.md`."""
    return _first_match(_normalized(parts), _INSTRUCTIONS, _INSTRUCTION_AFFIXES) is not None


def protected_settings_part(parts: Iterable[str]) -> str | None:
    """Return the first of a path's parts that is protected wherever it is named, also in a shell command, or None.

    Names that are protected against writing only (`conftest.py`, `AGENTS.md`) are not included: a command may name
    them, even after `>`.
    """
    return _first_match(_normalized(parts), _SETTINGS, PROTECTED_AFFIXES)


def _first_match(parts: tuple[str, ...], names: frozenset[str], affixes: tuple[tuple[str, str], ...]) -> str | None:
    for part in parts:
        if part in names or any(_has_affix(part, affix) for affix in affixes):
            return part
    return next((pair for pair in map("/".join, pairwise(parts)) if pair in names), None)


def _has_affix(part: str, affix: tuple[str, str]) -> bool:
    return part.startswith(affix[0]) and part.endswith(affix[1])


def changes_bare_repository(root: Path, parts: tuple[str, ...]) -> bool:
    """Return whether writing the file `parts` in `root` creates or changes a bare git repository.

    The configuration of a repository names programs that git runs. When git runs in a folder of any name, it
    recognises a bare repository by HEAD, objects and refs.
    """
    folded = _normalized(parts)
    if folded[-1:] == ("head",):
        return True
    return any(
        part in _REPOSITORY_PARTS and os.path.lexists(root.joinpath(*parts[:depth], "HEAD"))
        for depth, part in enumerate(folded)
    )


def is_within(path: Path, root: Path) -> bool:
    """Return whether `path` is `root` or lies in it, also if `root` is reached through a link."""
    return path.is_relative_to(root) or path.is_relative_to(os.path.realpath(root))


def _normalized(parts: Iterable[str]) -> tuple[str, ...]:
    """Return names in the form that the most lenient file systems compare: HFS+ ignores invisible characters."""
    return tuple(_without_invisible(part).casefold().rstrip(". ") or part for part in parts)


def _without_invisible(part: str) -> str:
    return part if part.isascii() else without_invisible(part)
