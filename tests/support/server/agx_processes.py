"""`agx` in processes of its own, as a user runs it."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.forked import AsyncProcess
from tests.support.timeouts import PATIENCE, patient_client

_SHOWN_CHARS = 2_000  # of stderr, in the note of an error

READY = re.compile(rb"http://127\.0\.0\.1:(\d+)/#([\w-]+)\n")


def environment(home: Path, **variables: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AGX_", "OPENAI", "COV_"))}
    return {**inherited, "AGX_HOME": str(home), "AGX_MODEL": "demo", "AGX_LOG_LEVEL": "warning", **variables}


@dataclass
class ServedStudio:
    """A running `agx serve` process."""

    process: AsyncProcess
    port: int
    ticket: str
    home: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def client(self, connections: int | None = None) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.token}"}
        return patient_client(self.url, headers=headers, connections=connections)


@asynccontextmanager
async def agx_serve(
    home: Path, *arguments: str, mutant: str | None = None, **more: str
) -> AsyncGenerator[ServedStudio]:
    """Run `agx serve` on a free port; an error of the body has a note with what it wrote to stderr.

    `mutant` is one of `tests.support.faults.broken.MUTANTS`.
    """
    process = await agx(home, "serve", "--port", "0", *arguments, mutant=mutant, **more)
    failure: BaseException | None = None
    try:
        async with asyncio.timeout(PATIENCE):
            line = await process.stderr.readline()
        ready = READY.search(line)
        assert ready is not None, line + await process.stderr.read()
        yield ServedStudio(process, int(ready[1]), ready[2].decode(), home)
    except BaseException as exc:
        failure = exc
        raise
    finally:
        code = process.returncode
        if code is None:
            process.kill()
        _, error = await process.communicate()
        if failure is not None:
            state = "ran" if code is None else f"had ended with {code}"
            failure.add_note(
                f"`agx serve` {state}; it wrote at last:\n{error.decode(errors='replace')[-_SHOWN_CHARS:]}"
            )


async def agx(home: Path, *arguments: str, mutant: str | None = None, **more: str) -> AsyncProcess:
    module, *mutants = ["agenticx.cli"] if mutant is None else ["tests.support.faults.broken_agx", mutant]
    return await AsyncProcess.start(module, [*mutants, *arguments], cwd=home.parent, env=environment(home, **more))


async def outcome(process: AsyncProcess) -> tuple[int | None, str, str]:
    try:
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        raise
    return process.returncode, out.decode(), err.decode()
