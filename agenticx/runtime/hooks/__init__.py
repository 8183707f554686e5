"""Hooks: the six points at which user code watches or changes a turn, and the registry that runs them.

Guards decide what happens, so they fail closed: if `before_model` fails the model is not called, if `before_tool_call`
fails the call is blocked, if `after_tool_call` fails the result is withheld. Observers (`after_model`, `on_compaction`,
`on_agent_end`) fail open and are reported as a non-fatal `error{hook_failed}` event.

An example of the three ways to decide on a call: the assessment of its tool, the confirm gate, and a hook.

    from agenticx import AgentHook, AgentRuntime, Assessment, Block, ConfirmGate, tool
    from agenticx.testing import ScriptedModel, call, say


    def assess_mail(arguments, context):  # the question for the user, and the values that an approval is bound to
        return Assessment(risk="write", question=f"Mail {arguments['to']!r}?", binding={"account": "me@example.com"})


    @tool(risk="write", assess=assess_mail)
    def mail(to: str, text: str) -> str:
        "Send a mail."
        return f"sent to {to}"


    class OnlyColleagues(ConfirmGate):
        def request_confirm(self, question, context):  # True or False; may be async
            return context["arguments"]["to"].endswith("@example.com")


    class NoSecrets(AgentHook):
        def before_tool_call(self, name, arguments, context):
            return Block("That is a secret.") if "password" in str(arguments) else None


    model = ScriptedModel([call("mail", {"to": "a@example.com", "text": "hi"}), say("Done.")])
    runtime = AgentRuntime(model, OnlyColleagues(), hooks=[NoSecrets()], tools=[mail])
    for event in runtime.run_sync("Say hi to a").events:
        print(event.type, event.data)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from agenticx.runtime.hooks.base import AgentHook, Block, HookContext
    from agenticx.runtime.hooks.registry import HookRegistry

__all__ = ["AgentHook", "Block", "HookContext", "HookRegistry"]

__getattr__, __dir__ = lazy_imports(
    __name__,
    {
        "agenticx.runtime.hooks.base": ["AgentHook", "Block", "HookContext"],
        "agenticx.runtime.hooks.registry": ["HookRegistry"],
    },
)
