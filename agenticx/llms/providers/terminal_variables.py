"""The variables of providers that a terminal gives to the one that runs its turns, for these turns only.

If one variable of a provider is set, all of them are given, so that no key is sent to an address of another terminal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from agenticx.llms.model_catalog import load_model_catalog
from agenticx.settings import provider_setting, remember_secret

__all__ = ["own_variables", "parse_variables"]


def own_variables() -> dict[str, str]:
    """Return the variables of each provider of which one is set in this process, "" for those that are not.

    Raises `SettingsError` if the catalogue cannot be read.
    """
    found: dict[str, str] = {}
    for provider in load_model_catalog().providers.values():
        values = {name: provider_setting(name) or "" for name in provider.variables}
        if any(values.values()):
            found |= values
    return found


def parse_variables(text: str) -> Mapping[str, str]:
    """Return the variables in a JSON object, those of providers alone, and have their keys hidden in logs and events.

    Raises ValueError for a text that is none, `SettingsError` if the catalogue cannot be read.
    """
    given: Any = json.loads(text)
    if not isinstance(given, dict):
        raise ValueError("the variables of providers are not an object")
    providers = load_model_catalog().providers.values()
    known = {name for provider in providers for name in provider.variables}
    values = cast("dict[str, Any]", given)
    variables = {name: str(value) for name, value in values.items() if name in known}
    for name in {name for provider in providers for name in provider.keys} & variables.keys():
        remember_secret(variables[name])
    return variables
