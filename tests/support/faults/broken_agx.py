"""The program `agx` with a broken studio.

Usage: `python -m tests.support.faults.broken_agx MUTANT serve --port 0`. MUTANT may be SOUND.
Shutdown has no time limit in either case: nothing is cut off on a slow machine, and a hang shows in the time it takes.
"""

from __future__ import annotations

import sys
from typing import Any

from agenticx import user_code
from agenticx.cli import main
from studio import app, server
from studio.services import Services, make_services
from tests.support.faults import broken
from tests.support.timeouts import PATIENCE

SOUND = "sound"

if __name__ == "__main__":
    mutant = sys.argv.pop(1)

    def make_broken(*args: Any, **kwargs: Any) -> Services:
        services = make_services(*args, **kwargs)
        broken.services(None if mutant == SOUND else mutant, services)
        return services

    app.make_services = make_broken
    limits: Any = (server, "_SHUTDOWN_SECONDS"), (user_code, "GRACE_SECONDS")
    for module, name in limits:
        assert hasattr(module, name)
        setattr(module, name, PATIENCE)
    sys.exit(main())
