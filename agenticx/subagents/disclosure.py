"""The confirmation before a sub-agent sends text to another provider.

The provider of the session's model and the provider of the acting agent's model have the text anyway. A call that
sends text to a sub-agent asks if the sub-agent's model is at neither. A server on this machine is a provider like any
other. Two names in the catalogue are one provider if they have one address, such as `openai` and `openai-chat`. A model
name that only an application's `runtime_for` function knows has no known provider; the application decides then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlsplit

from agenticx.errors import AgenticXError
from agenticx.llms.model_catalog import ModelCatalog, Provider, load_model_catalog
from agenticx.tools.base import Assessment
from agenticx.tools.context import ToolContext
from agenticx.tools.registry import FunctionTool
from agenticx.tools.visible import visible_line

__all__ = ["ModelNames", "asks_before_disclosing"]


@dataclass(frozen=True, slots=True)
class ModelNames:
    """The names of three models: the sub-agent's, the session's, and the acting agent's.

    Each is a pair: the name by which the model was chosen, then the model's own name. A sub-agent's unknown model has
    no own name. `task` is the task of a sub-agent that exists already.
    """

    subagent: tuple[str, ...]
    session: tuple[str, ...]
    acting: tuple[str, ...]
    task: str = ""


@dataclass(frozen=True, slots=True)
class _ModelProvider:
    """A provider: its name and its address; the address is the name again if it is unknown."""

    name: str
    address: str


NamesOfCall = Callable[[Mapping[str, Any]], ModelNames | None]
"""A function that returns the names for a call by its arguments.

It returns None if no model was chosen or the model is unknown; the call itself reports an unknown model."""


@dataclass(frozen=True, slots=True)
class _DisclosingTool(FunctionTool):
    """A tool that sends `what` to a sub-agent.

    It is assessed in place, as a tool without an assessor is, so that the calls of a round keep their order.
    """

    names: NamesOfCall
    what: str

    def assess(self, arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
        """Return the assessment of the call, which asks if the text goes to another provider."""
        assessment = FunctionTool.assess(self, arguments, context)
        try:
            if (names := self.names(arguments)) is None:
                return assessment
            catalog = load_model_catalog()
        except AgenticXError as exc:
            return replace(assessment, unchecked=True, reasons=(f"The model's provider is unknown: {exc}.",))
        return _assess_disclosure(assessment, names, self.what, catalog)


def asks_before_disclosing(names: NamesOfCall, what: str) -> Callable[[FunctionTool], FunctionTool]:
    """Return a decorator for a tool that sends `what` to a sub-agent, such as `The task`."""

    def decorate(tool: FunctionTool) -> FunctionTool:
        values = {field.name: getattr(tool, field.name) for field in fields(tool)}
        return _DisclosingTool(**values, names=names, what=what)

    return decorate


def _assess_disclosure(assessment: Assessment, names: ModelNames, what: str, catalog: ModelCatalog) -> Assessment:
    if len(names.subagent) == 1 and _row(catalog, names.subagent[0]) is None:
        return assessment
    target, session, acting = (_provider(catalog, of) for of in (names.subagent, names.session, names.acting))
    if target.address in (session.address, acting.address):
        return assessment
    shown, own = visible_line(target.name), visible_line(session.name)
    model, of_session = visible_line(names.subagent[0]), visible_line(names.session[0])
    reasons = [
        f"The sub-agent's model is {model} of {shown}, the session's {of_session} of {own}. {what}, and all that the "
        f"sub-agent reads and does, is sent to {shown}."
    ]
    if names.task:
        reasons.append(f"Its task is: {visible_line(names.task)}")
    return replace(
        assessment,
        question=f"Send text to {shown}, another provider than {own}?",
        reasons=tuple(reasons),
        discloses=True,
        binding={**assessment.binding, "from": session.address, "to": target.address},
    )


def _provider(catalog: ModelCatalog, names: tuple[str, ...]) -> _ModelProvider:
    """Return the provider of a model with these names, by the first that the catalogue knows."""
    for name in names:
        if row := _row(catalog, name):
            return _ModelProvider(row.name, urlsplit(row.effective_base_url()).netloc.lower())
    own = names[-1].partition(":")[0]
    return _ModelProvider(own, own)


def _row(catalog: ModelCatalog, name: str) -> Provider | None:
    return catalog.providers.get(name.partition(":")[0])
