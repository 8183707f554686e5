"""`agx` whose studio is broken on purpose: `python -m tests.faults.broken_agx MUTANT serve --port 0`."""

from __future__ import annotations

import sys
from typing import Any

from agenticx.cli import main
from studio import server
from studio.services import Services, make_services
from tests.faults import broken

if __name__ == "__main__":
    mutant = sys.argv.pop(1)

    def make_broken(*args: Any, **kwargs: Any) -> Services:
        services = make_services(*args, **kwargs)
        broken.services(mutant, services)
        return services

    server.make_services = make_broken
    sys.exit(main())
