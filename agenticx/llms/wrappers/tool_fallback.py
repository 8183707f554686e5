"""A wrapper that puts tools into the prompt once the server has refused them."""

from __future__ import annotations

import re
from dataclasses import replace

from agenticx.errors import ModelError
from agenticx.llms.base import ChatModel, ModelRequest
from agenticx.llms.downgrades import Downgrade, find_downgrade, refuses_role
from agenticx.llms.opening import OpenReply
from agenticx.llms.opening_policy import open_with_downgrades
from agenticx.llms.wrappers.base import ModelWrapper
from agenticx.llms.wrappers.xml_tools import XmlToolModel
from agenticx.logs import get_logger

__all__ = ["ToolFallbackModel"]

_TOOLS = (
    r"(?:(?:tools?|functions?)(?:[ _/-](?:calls?|calling|use|usage|support)| choice)|function/tool calling"
    r"|tools|functions)"
)
"""Function calling, in the words of servers; `tool` alone means one tool, and a tool's name does not count."""

_NO = r"(?:(?:is|are|was|were|has|have|been|currently|yet) ?){0,3}(?:not|n['’]t|never)(?: (?:been|currently|yet))?"
_ALLOWED = r"(?:support|enabl|available|allow|implement|permit|accept|configured)"
_INSIDE = r"['`\"]?(?:\[|\.\w)"  # a field inside a tool follows: another matter

_REFUSES_TOOLS = re.compile(
    "|".join(
        (
            # "phi4:14b does not support tools": Ollama, DeepSeek, Bedrock, many gateways; not LiteLLM's "Anthropic
            # doesn't support tool calling without `tools=`"
            r"(?:not|n['’]t|cannot) (?:currently |yet )?(?:support|accept|advertise|allow|have|call|use) "
            rf"(?:(?:the|any|native|external|use of|parameter) ){{0,3}}[`'\"]?{_TOOLS}\b"
            rf"(?!{_INSIDE}| (?:without|with (?!th(?:is|e) model)|of type|named|results?|in streaming))",
            rf"(?:not|n['’]t) (?:capable of|compatible with|trained (?:for|on)) {_TOOLS}\b|lacks? {_TOOLS}\b",
            # "Function calling is not enabled for models/gemma-3-27b-it": Gemini, Mistral, OpenAI, Groq, DeepInfra,
            # SiliconFlow, Perplexity, NVIDIA, Alibaba
            rf"(?<!with )(?<!parallel )(?<!hosted )(?<!built-in )(?<!caching of )\b{_TOOLS}[`'\"]?"
            r"(?:(?:,| and| or) [`'\"]?\w{1,40}[`'\"]?){0,2} ?(?:param\w* |field |option )?"
            rf"(?:{_NO} {_ALLOWED}|must not be (?:provided|sent|set|used)|:? ?unsupported\b"
            r"|(?:is|are|(?:has|have) been) (?:currently )?(?:unsupported|unavailable|disabled)"
            r"|(?:is|are) only (?:supported|available))",
            rf"\b{_TOOLS}[`'\"]? (?:is|are|has|have)n['’]t (?:been )?{_ALLOWED}|\b{_TOOLS} requires? a model",
            rf"\b{_TOOLS},? which [\w ]{{0,30}}(?:not|n['’]t) support",
            # "No endpoints found that support tool use": OpenRouter; Together; Azure
            rf"\b(?:no|none of) [\w ]{{0,60}}supports? {_TOOLS}\b|\bno tools? support"
            rf"|not supported for [\w/ ]{{0,20}}{_TOOLS}\b",
            # "Tool use with function calling is unsupported by the model": Gemini
            r"\btool use with function calling is (?:unsupported|not supported)",
            r"unsupported (?:tool|function)[ _-](?:calls?|calling|use|usage)\b(?! with)",
            # "Argument not supported on this model: tools": xAI
            rf"(?:not supported(?: (?:on|by|for|with|in) [\w ./:-]{{1,60}}?:)?|unsupported feature):? [`'\"]?{_TOOLS}\b"
            rf"(?!{_INSIDE})",
            # "Unsupported param: tools", "Unrecognized request arguments supplied: tool_choice, tools": llama.cpp of
            # old, OpenAI, Azure, servers in Go and Python
            r"(?:un(?:supported|known|recogni[sz]ed|expected)|invalid|extra) (?:request |keyword |body )?"
            r"(?:param\w*|arg\w*|fields?|keys?|propert\w*|names?)(?: supplied)?:? [^.;]{0,60}?"
            rf"\b(?:tools|functions)\b(?!{_INSIDE})",
            # Validators of bodies: "loc": ["body", "tools"], "msg": "Extra inputs are not permitted"
            r"['\"](?:tools|functions)['\"][\])][^{}]{0,40}(?:extra|not permitted|unexpected)",
            r"(?:extra|not permitted)[^{}]{0,60}['\"](?:tools|functions)['\"]\s?[\])]|field: ['\"]tools['\"]"
            r"|\btools: extra|['\"]tools['\"] (?:was|were) unexpected",
            # LiteLLM
            r"not support (?:these )?param\w*: [^\])]{0,120}?['\"]tools['\"]",
            # vLLM, NVIDIA and llama.cpp without their options for tools
            r"requires --(?:enable-auto-tool-choice|tool-call-parser|jinja)|tool call parser not given",
            # "Model x does not support tool_choice", where that is not sent, or the wire cannot do without it
            r"(?:not|n['’]t) support (?:(?:the|param\w*|arg\w*|field) ){0,2}['\"`]?tool_choice\b"
            r"|not supported[^.;]{0,60}: tool_choice\b|(?:unsupported|unknown|unrecogni[sz]ed) (?:request )?"
            r"(?:param\w*|arg\w*|field)(?: supplied)?:? ['\"`]?tool_choice\b",
            # Gateways in China
            r"(?:不支持|未开启|没有开启|无法使用)[^。;；]{0,16}(?:工具|函数|function|tool)",
            r"(?:工具|函数)(?:调用)?[^。;；]{0,4}不(?:支持|可用)",
        )
    ),
    re.IGNORECASE,
)
"""Refusals of function calling; the wordings seen in the wild are in `tests/unit/llms/tool_refusals.toml`."""

_REFUSES_RESULTS = re.compile(rf"{refuses_role('tool')}|conversation roles must alternate", re.IGNORECASE)
"""Refusals of chat templates without a role for results, if the order of the roles is right already."""

_CODES = frozenset({"provider.bad_request", "provider.overloaded", "provider.bad_reply"})
"""The codes of refusals; some servers send them with status 500. Limits and missing rights are other matters."""

_log = get_logger(__name__)


def _with_tools_in_prompt(model: ChatModel) -> ChatModel:
    return model if isinstance(model, XmlToolModel) else XmlToolModel(model)


_TOOLS_IN_PROMPT = Downgrade(
    _REFUSES_TOOLS, _with_tools_in_prompt, "the model takes no tools; they are in its prompt from now on"
)
_RESULTS_IN_PROMPT = replace(_TOOLS_IN_PROMPT, error_pattern=_REFUSES_RESULTS)


class ToolFallbackModel(ModelWrapper):
    """A wrapper that calls the model with tools in its prompt from its first refusal of tools on."""

    async def open(self, request: ModelRequest) -> OpenReply:
        """Open the inner model's reply; a refused request is sent again before the first batch."""
        return await open_with_downgrades(lambda: (self._model, request), self._try_downgrade)

    def _try_downgrade(self, model: ChatModel, request: ModelRequest, error: ModelError) -> bool:
        """Switch to tools in the prompt if the server refused tools, calls or results; return whether it did."""
        has_results = any(message.role == "tool" for message in request.messages)
        if not (request.tools or has_results) or error.code not in _CODES:
            return False
        if find_downgrade(model, error, [_TOOLS_IN_PROMPT, _RESULTS_IN_PROMPT][: 1 + has_results]) is None:
            return False
        if self._model is model:  # another call may have switched already
            self._model = _TOOLS_IN_PROMPT.apply(model)
            _log.warning(_TOOLS_IN_PROMPT.log_message, model=self.name, reason=str(error))
        return True
