"""The commands that the studio adds to `agx`; each module is imported when its command runs.

`agx` finds them through the entry-point group `agenticx.commands`, because the library must not import the studio.
"""

from __future__ import annotations

from agenticx.cli.registry import ModuleCommand

__all__ = ["OPEN", "OPENAPI", "SERVE"]

SERVE = ModuleCommand("serve", "The studio: the server and its page", "studio.serve")
OPEN = ModuleCommand("open", "The running studio's page, with a fresh ticket", "studio.open_page")
OPENAPI = ModuleCommand("openapi", "The OpenAPI document, for generators of clients", "studio.print_openapi")
