"""The examples in the docstring of `agenticx.teams` run as they are written, without a network."""

from __future__ import annotations

import asyncio
import re
import sys
import textwrap
from pathlib import Path

import pytest

import agenticx.teams

pytestmark = pytest.mark.anyio

EXAMPLES = [
    textwrap.dedent(block)
    for block in re.findall(r"(?:^    .*\n|^\n)+", agenticx.teams.__doc__ or "", re.MULTILINE)
    if "import asyncio" in block
]


@pytest.mark.parametrize(("number", "words"), [(0, "hello"), (1, "greeter-1")])
@pytest.mark.cases(quick=1)
async def test_an_example_of_the_docstring_of_teams_runs(tmp_path: Path, number: int, words: str) -> None:
    script = tmp_path / "example.py"
    script.write_text(EXAMPLES[number])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", str(script), stdout=-1, stderr=-1, cwd=tmp_path
    )
    out, err = (part.decode() for part in await process.communicate())
    assert (process.returncode, "Traceback" in err) == (0, False), err
    assert words in out
