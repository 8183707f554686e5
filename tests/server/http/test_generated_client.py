"""A client for TypeScript, generated from `agx openapi`, compiled, and used against a running studio."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path

import pytest

from agenticx.llms import ScriptedModel
from tests.support.javascript import NODE
from tests.support.server.running_studio import IN_A_FILE, TOKEN, StudioMaker
from tests.support.timeouts import PATIENCE

NODE_FOLDER = Path(__file__).parents[2] / "node"
PACKAGES = NODE_FOLDER / "node_modules"
COMPILER_OPTIONS = {
    "strict": True,
    "exactOptionalPropertyTypes": True,
    "noUncheckedIndexedAccess": True,
    "module": "esnext",
    "moduleResolution": "bundler",
    "target": "es2022",
    "lib": ["es2022", "dom", "dom.iterable"],
}


def _missing() -> str | None:
    """Return the reason why no client can be generated here, else None."""
    if NODE is None:
        return "needs node"
    packages = ("openapi-typescript", "openapi-fetch", "typescript")
    missing = [name for name in packages if not (PACKAGES / name).exists()]
    return f"needs {', '.join(missing)}: run `npm ci` in {NODE_FOLDER}" if missing else None


async def _run(*command: str, folder: Path) -> str:
    """Run a program in a folder and return its output; it must succeed."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, (out.decode(), err.decode())
    return out.decode()


@pytest.mark.anyio
@pytest.mark.ci_lane
@IN_A_FILE
@pytest.mark.skipif(_missing() is not None, reason=str(_missing()))
async def test_a_generated_client_compiles_and_runs_a_turn(make_studio: StudioMaker, tmp_path: Path) -> None:
    assert NODE is not None
    (tmp_path / "node_modules").symlink_to(PACKAGES)
    shutil.copy(NODE_FOLDER / "typescript_client.ts", tmp_path)
    declarations = "declare const process: { argv: string[] };\n"  # of node, whose types are a large package
    (tmp_path / "node.d.ts").write_text(declarations)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": COMPILER_OPTIONS}))
    (tmp_path / "openapi.json").write_text(await _run(sys.executable, "-m", "agenticx.cli", "openapi", folder=tmp_path))

    generator = str(PACKAGES / "openapi-typescript" / "bin" / "cli.js")
    await _run(NODE, generator, "openapi.json", "--output", "schema.d.ts", folder=tmp_path)
    await _run(NODE, str(PACKAGES / "typescript" / "bin" / "tsc"), folder=tmp_path)
    async with make_studio(ScriptedModel(["Hello there."])) as studio:
        (studio.workspace / "AGENTS.md").write_text("Use tabs.")
        url = f"http://127.0.0.1:{studio.port}"
        output = await _run(NODE, "typescript_client.js", url, TOKEN, folder=tmp_path)
    assert json.loads(output) == {
        "answer": "Hello there.",
        "ofTurn": {"outcome": "answer", "first": "turn_started", "last": "final", "all": True},
        "isMissing": True,
        "permissions": {"origin": "http", "warnings": 2, "decision": "ask", "left": 0},
        "trust": [False, True],
    }
