"""`agx openapi`: the OpenAPI document, printed without a server."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from studio.http.openapi import openapi_document
from studio.routes.table import TABLE

__all__ = ["configure", "run"]

_EXAMPLES = """\
examples:
  agx openapi > openapi.json
  agx openapi | npx openapi-typescript > agenticx.d.ts     types for TypeScript
"""


def configure(parser: ArgumentParser) -> None:
    parser.description = "The OpenAPI document of the studio's HTTP API, as GET /openapi.json has it."
    parser.epilog = _EXAMPLES


def run(arguments: Namespace) -> int:
    print(json.dumps(openapi_document(TABLE), indent=2))
    return 0
