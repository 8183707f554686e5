"""The `agx models` command: the models that can be used now, or all known ones, and why."""

from __future__ import annotations

import asyncio
import json
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from agenticx.cli.exit_codes import DONE
from agenticx.cli.options import current_folder
from agenticx.llms.providers.resolve import ModelInfo, list_models
from agenticx.sessions.store.factory import using_shared_state
from agenticx.settings import load_settings
from agenticx.tools.visible import visible_line

__all__ = ["configure", "run"]

_EPILOG = """\
These are AGX_MODEL, the models of providers that have a key, those of servers on this machine, and the demo, the likely
choices first. Other models of these providers can be used by their names. No store is opened, and no key is sent
anywhere. To add models, or other facts and prices of known ones, write rows as in config/models.toml to models.toml in
AGX_HOME.

examples:
  agx models
  agx models --all                           also those that lack a key or a server
  agx run "Hello" --model "$(agx models | head -1 | cut -d' ' -f1)"
  agx models --json | jq -r .model

exit codes: 0 done, 2 usage"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx models` to its parser."""
    parser.epilog = _EPILOG
    parser.add_argument("--all", action="store_true", help="also models of the catalogue that cannot be used now")
    parser.add_argument("--json", action="store_true", help="one object per line")


def run(arguments: Namespace) -> int:
    """Run `agx models` and return its exit code."""
    settings = load_settings(project=current_folder())
    with using_shared_state(settings):
        models = asyncio.run(list_models(settings, available_only=not arguments.all))
    if arguments.json:
        for model in models:
            print(json.dumps(_to_json(model)))
    else:
        _print_table(models)
    return DONE


def _print_table(models: Sequence[ModelInfo]) -> None:
    names = [visible_line(model.spec, 200) for model in models]
    width = max(map(len, names))
    for name, model in zip(names, models, strict=True):
        window = f"{model.facts.input_window:>9,}" if model.facts.input_window else f"{'-':>9}"
        print(f"{name:<{width}}  {window}  {visible_line(model.source)}")


def _to_json(model: ModelInfo) -> dict[str, Any]:
    window, output = model.facts.input_window, model.facts.output
    return {
        "model": model.spec,
        "provider": model.provider,
        "available": model.available,
        "why": model.source,
        "context_window": window,
        "max_output_tokens": output,
    }
