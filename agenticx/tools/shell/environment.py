"""The environment in which commands run, and the bash that runs them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from agenticx.errors import ToolError
from agenticx.settings import child_environment

__all__ = ["command_environment", "find_bash"]

# Commands run without a terminal: no pager, no prompt. And bash must not run a start-up file before the command.
_NONINTERACTIVE = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
_CHANGING_VARIABLES = re.compile(
    r"BASH_ENV|ENV|SHELLOPTS|BASHOPTS|BASH_FUNC_.*"
    r"|CDPATH|GLOBIGNORE|GREP_OPTIONS|LESSOPEN|LESSCLOSE|RIPGREP_CONFIG_PATH|GIT_.*"  # reads or runs something else
)


def command_environment() -> dict[str, str]:
    """Return this process's environment without pagers, prompts, and variables that change how bash reads."""
    return {
        name: value
        for name, value in child_environment(_NONINTERACTIVE).items()
        if name in _NONINTERACTIVE or not _CHANGING_VARIABLES.fullmatch(name)
    }


def find_bash(environment: Mapping[str, str], workspace: Path) -> str:
    """Return the path of bash; a bash in the workspace is not used, since an agent may have written it."""
    folders = [folder for folder in environment.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
    outside = [folder for folder in folders if not Path(os.path.realpath(folder)).is_relative_to(workspace)]
    path = shutil.which("bash", path=os.pathsep.join(outside))
    if path is None:
        raise ToolError("there is no bash on this machine's PATH outside of the workspace; install it to run commands")
    return path
