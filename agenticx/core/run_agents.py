"""The agents of a run, by a method of `Agent` or an executor, and their models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from agenticx.core.case_tools import ENDINGS_BY_NAME
from agenticx.core.handoffs import AnyAgent
from agenticx.llms.base import ChatModel
from agenticx.llms.duck_typed.model import adapt
from agenticx.runtime.hooks import HookRegistry
from agenticx.runtime.turn import Turn, current_turn
from agenticx.runtime.turn_agent import TurnAgents
from agenticx.settings import Settings

__all__ = ["Models", "RunAgents", "find_parent_turn"]


class Models:
    """The models of an executor, by name. `default` is used for agents that have none.

    Raises `SettingsError` for a `default` that is no model's name, `TypeError` for one that is no model.
    """

    def __init__(self, default: Any, settings: Settings) -> None:
        if isinstance(default, str):
            from agenticx.llms.providers.resolve import find_model_facts  # on first use, as below

            find_model_facts(default)
        elif default is not None:
            adapt(default)
        self._settings = settings
        self._default = default
        self._resolved: dict[str, ChatModel] = {}

    def of(self, agent: AnyAgent) -> ChatModel:
        """Return the model of `agent`; raises `SettingsError` for an unknown name."""
        chosen = self._default if agent.model is None else agent.model
        if chosen is None:
            from agenticx.llms.providers.resolve import default_model_spec  # on first use: it looks for local servers

            chosen, _ = default_model_spec(self._settings)
        return self.resolve(chosen)

    def resolve(self, model: Any) -> ChatModel:
        """Return a model, also one given by name or duck-typed."""
        return self._named(model) if isinstance(model, str) else adapt(model)

    def __iter__(self) -> Iterator[ChatModel]:
        """Iterate over the models that were made from names."""
        return iter(tuple(self._resolved.values()))

    def _named(self, name: str) -> ChatModel:
        from agenticx.llms.assembly import resolve_model  # on first use: it imports the HTTP client

        if name not in self._resolved:
            self._resolved[name] = resolve_model(name, settings=self._settings)
        return self._resolved[name]


class RunAgents(TurnAgents):
    """The agents of one run; `taken_over` are the agents that took over by a handoff, in order.

    `model_of`, `hooks` and `task_prompt` are as in `TurnAgents`. With `resolve_on_text` an answer that names one of the
    tools `case_*` ends the turn like a call of that tool.
    """

    def __init__(
        self,
        model_of: Callable[[Any], ChatModel],
        hooks: HookRegistry,
        *,
        task_prompt: str = "",
        resolve_on_text: bool = False,
    ) -> None:
        endings = ENDINGS_BY_NAME if resolve_on_text else None
        super().__init__(model_of, hooks, task_prompt=task_prompt, endings_by_text=endings)
        self.taken_over: list[Any] = []

    @property
    def active(self) -> Any:
        """The agent that took over last, if one did."""
        return self.taken_over[-1] if self.taken_over else None

    def took_over(self, agent: AnyAgent) -> None:
        self.taken_over.append(agent)


def find_parent_turn() -> Turn | None:
    """Return the turn in which the code runs if it may still begin child turns, else None."""
    turn = current_turn()
    return turn if turn is not None and turn.children.is_open else None
