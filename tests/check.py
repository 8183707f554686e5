"""All checks, those that fail fastest first: `python -m tests.check [--static | options for pytest]`.

With `--static` the tests are left out. The programs come with the extra `dev`: pip install -e ".[dev]"
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
STEPS = {
    "lint": ["ruff", "check", "--output-format", "concise", "."],
    "format": ["ruff", "format", "--check", "."],
    "imports": ["lint-imports", "--no-cache"],
    "types": ["pyright", "--warnings", "--pythonpath", sys.executable],
    "tests": ["pytest", "-n", "auto"],
}


def main() -> int:
    """Run every step, with `--static` all but the tests; return 1 if any failed, 2 if one cannot run."""
    failed: list[str] = []
    options = sys.argv[1:]
    if options in (["--help"], ["-h"]):
        print(__doc__)
        return 0
    if options == ["--static"]:
        steps = {name: command for name, command in STEPS.items() if name != "tests"}
    else:
        steps = STEPS | {"tests": [*STEPS["tests"], *options]}
    programs = {program: Path(sys.executable).with_name(program) for program, *_ in steps.values()}
    if missing := [program for program, path in programs.items() if not path.exists()]:
        print(f'{", ".join(missing)} not found beside {sys.executable}: pip install -e ".[dev]"', file=sys.stderr)
        return 2
    for name, (program, *arguments) in steps.items():
        started = time.monotonic()
        print(f"── {name}: {program} {' '.join(arguments)}", flush=True)
        if subprocess.run([str(programs[program]), *arguments], cwd=ROOT).returncode != 0:
            failed.append(name)
        print(f"── {name}: {'FAILED' if name in failed else 'ok'} after {time.monotonic() - started:.1f} s", flush=True)
    print(f"FAILED: {', '.join(failed)}" if failed else "all checks pass")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
