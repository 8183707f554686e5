"""Recognition of errors that say that a request is too large for a model.

An overflow is answered by compacting the history, so two mistakes are possible: an overflow that is not recognised
leaves a session that fails for ever, and another error that is taken for one costs a summary and hides the reason. In
order:

1. Codes (`context_length_exceeded`), of any provider, and the codes and empty bodies of a single provider.
2. Limits per minute or day and limits of the output are no overflow, although they speak of tokens.
3. Wordings of one server each, then a number of tokens that the model takes with a greater number that it got, then a
   sentence of the form *input* exceeds *limit*, unless it is about an image, a tool or another part of the request.

The wordings seen in the wild are in `tests/unit/wires/overflow_wordings.toml`. All repetitions are bounded, and only
the beginning of a message is read.
"""

from __future__ import annotations

import re
from typing import Literal

from agenticx.lazy_patterns import lazy_compile

__all__ = ["exceeded_limit", "exceeds_account_limit"]

_CODE = lazy_compile(
    r"(context|prompt|input)_?(length|window|size|limit)_?exceed|exceed_context_size|contextwindowexceeded|outofcontext"
    r"|(prompt|input|context)_?tokens?_?(limit_?)?(exceeded|reached)|(?<!_)tokens?_?limit_?(exceeded|reached)"
    r"|(request|payload|prompt|input|context|(?<!_)tokens)_too_(large|long)",
    re.IGNORECASE,
)
"""Codes and types: OpenAI and many others; llama.cpp; LiteLLM; Volcano; GitHub Copilot and Models; Anthropic."""

_PROVIDER_CODES = {"zai": lazy_compile(r"^1261$")}
"""Codes that only mean something at one provider."""

_PROVIDERS_WITHOUT_REASON = frozenset({"cerebras"})
"""Providers whose 400 without a body is an overflow; https://github.com/badlogic/pi-mono (packages/ai, overflow)."""

_RATE = lazy_compile(
    r"per[- ]?(second|sec|minute|min|hour|day|week|month)\b|this (second|minute|hour|day|month)\b|\b[trip]p[smhd]\b"
    r"|rate[ _-]?limit|token rate|too many requests|please wait|(try|retry) again in \d"
    r"|\bquota|(hourly|daily|weekly|monthly|usage|spend(ing)?|credit|billing) (token )?(limit|cap)|per-model limit"
    r"|频率|并发|每分钟|每天|余额|额度|配额",
    re.IGNORECASE,
)
_OUTPUT = lazy_compile(
    r"max(imum)?[ _]?((output|completion|new)[ _]?)?tokens|(output|completion) tokens", re.IGNORECASE
)
_INPUT = lazy_compile(
    r"\b(inputs?|prompts?|messages?|conversation|history|in (the )?request)\b|prompt_|input_|输入|提示", re.IGNORECASE
)
_OUTPUT_COUNT = lazy_compile(
    r"(\d+)(?: tokens)? (?:in|for) the (?:completion|output)|requested (\d+) output tokens|(\d+) `?max_new_tokens"
    r"|max_(?:completion_)?tokens'? is too large: (\d+)",
    re.IGNORECASE,
)
_TOTAL = lazy_compile(r"(?:context (?:length|window) (?:is|of)(?: only)?|must be <=) (\d+)", re.IGNORECASE)

_CONTEXT = r"context[ _-]?(?:length|window|size|limit|budget)"
_MORE = r"(?:exceed\w*|(?:longer|larger|greater|bigger|more) than|beyond|too (?:large|long|big) for)"
_GAP = r"(?:[^.;。]|\.(?=\S)){0,80}?"
_INPUT_NOUN = (
    r"(?:\b|(?<=num_)|(?<=prompt_)|(?<=input_)|(?<=total_))"
    r"(?:prompt|inputs?|messages?|tokens|token (?:count|length)|conversation|history|request|payload|body)"
)
"""The subject of a sentence that says that there is too much input."""

_LIMIT_NOUN = r"(?:max|limit|allowed|permitted|supported|\d{3,}|\d,\d|length)"

_WORDING = lazy_compile(
    "|".join(
        (
            # The context is full: OpenAI, llama.cpp, LM Studio, Ollama, MiniMax, LiteLLM, Cloudflare.
            rf"{_CONTEXT}\W{{0,3}}(?:\w+ ){{0,3}}(?:exceed|overflow|reached|full)",
            rf"{_MORE} .{{0,60}}{_CONTEXT}",
            r"(?:context|prompt)_(?:length|tokens) exceeded",
            rf"reached (?:the )?(?:max\w* )?{_CONTEXT}",
            rf"{_CONTEXT} (?:is |of )?only|context the overflows|context shift is disabled",
            rf"request(?:ed)? .{{0,40}}\bthan .{{0,40}}{_CONTEXT}",
            rf"{_CONTEXT} is [\d,.]+k? tokens|context overflow|slot context|\bn_ctx",
            rf"{_INPUT_NOUN} {_MORE} (?:the |this )?(?:model'?s? )?context\b",
            # The limit is named: OpenAI, OpenRouter, vLLM, xAI, Fireworks, Bedrock, Ernie.
            r"max(?:imum)? (?:context|input|prompt|model|sequence|total) (?:token )?"
            r"(?:length|size|tokens?|characters)(?: is|:)",
            r"(?:prompt|input) token count .{0,40}(?:exceed|supports (?:only )?up to|only supports)",
            r"max_model_len|max_seq_len|max_num_tokens|max_position_embeddings",
            r"(?:prompt|input) (?:length|size|tokens?) \(?[\d,]{1,12}\)? (?:tokens )?exceeds?\b"
            r"|(?:prompt|input|total) tokens? (?:limit )?exceeded|requested [\d,]{1,12} tokens?,? but only",
            r"shorten (?:your|the) (?:prompt|input|messages?|conversation)|range of input length",
            r"(?:do|does)(?: not|n't) fit (?:in|into|within) .{0,20}context",
            r"reduce the (?:length|number) of (?:the |your )?(?:tokens|messages|prompt|input)",
            # The prompt is too long: Anthropic, Bedrock, Fireworks, GitHub Models, nginx, Cohere, Google.
            rf"(?:{_INPUT_NOUN}|\bcontext) (?:entity |body |text |size |token length |length )?(?:is |are |was )?"
            r"too (?:long|large|big)\b|too (?:long|large) (?:a )?(?:prompt|input|request|context)\b",
            r"too many (?:input |prompt )?tokens|too many total text bytes",
            r"\d tokens? > \d|\btokens?:? [\d,]{1,12} > \d",
            r"exceed\w* (?:the )?(?:model'?s? )?(?:max\w* )?(?:(?:input|prompt) )?tokens? (?:limit|count|length)",
            r"exceed\w* (?:the )?max\w* (?:allowed )?"
            r"(?:(?:number|amount) of tokens|(?:input|prompt|context|request|payload)\b)",
            r"(?:must|should) have (?:less|fewer) than \d+ tokens",
            r"tokens? limit (?:of [\d,]{1,12} )?(?:is |was )?(?:exceeded|reached)",
            r"content[- ]length (?:limit )?exceeded",
            r"tokens of image and text exceed max message tokens",
            r"limit on max bytes to request body",
            r"invalid '(?:messages|input)(?:\[\d+\]|\.content|\.text|\.output){0,4}': (?:string|array) too long",
            # Chinese gateways.
            r"(?:上下文|输入|提示词?|prompt|tokens?|消息|对话|内容)[^。;；图]{0,20}(?:过长|超长|超限|超出|超过)",
            r"(?:超出|超过)[^。;；图]{0,12}(?:上下文|最大长度|长度限制)",
        )
    ),
    re.IGNORECASE,
)
_SENTENCE = lazy_compile(
    rf"(?:{_INPUT_NOUN}|\bsequence)\b`?{_GAP}(?:(?:is|are|was|were) too (?:long|large|big)"
    rf"|(?:{_MORE}|(?:must|should) (?:not )?(?:be|have|contain) (?:<=?|(?:less|fewer|shorter|smaller) than|at most|no )"
    rf"|(?:over|above) (?:the\b|(?=limit|max|\d))|(?:do|does)(?: not|n't) fit){_GAP}{_LIMIT_NOUN})",
    re.IGNORECASE,
)
"""The general form: `Prompt exceeds max length`, `total message size 9 exceeds limit 8`."""

_OTHER_PART = lazy_compile(
    r"image|picture|photo|pixel|video|audio|\bpdf|\bpages?\b|\bfile|document|attachment|\btools?\b|tool_|function|schema"
    r"|\bnames?\b|title|description|\bids?\b|_id\b|\bkey|header|\bur[il]\b|\bstop\b|metadata|logprob|temperature|penalty"
    r"|input should be (?:less|greater)"
    r"|(?:thinking|reasoning)[ _](?:block|signature|text|content|item|budget|data)|signature|redacted|encrypted"
    r"|embedding|depth|nest|propert|candidate|choices|cache|batch|图片|图像|文件"
    r"|\brate\b|\btime|seconds|deadline|retries|attempts|connections|concurren",
    re.IGNORECASE,
)
"""Parts of a request with limits of their own: no summary makes them smaller. `Input should be` is any field's."""

_ACCOUNT_LIMIT = lazy_compile(
    r"long context (?:beta|requests?\b)|prompt tokens limit exceeded: \d+ > \d+", re.IGNORECASE
)
"""Refusals of requests that are too large for an account: Anthropic (over 200,000 tokens), OpenRouter (unpaid)."""

_MAX_CHARS = 2_000
_CLAUSE_CHARS = 40
_SENTENCE_END = lazy_compile(r"[.;。](?=\s|$)")

_NUMBER = r"(?<![\d.,])(\d[\d,]{0,14}(?:\.\d{1,6})?(?: ?[km])?)\b"
_LIMIT = rf"\blimit\b[^\d;]{{0,20}}{_NUMBER}"
_REQUEST = rf"\b(?:requested|request tokens|request (?:of|with|has))\b[^\d;]{{0,20}}{_NUMBER}"
_LIMIT_FIRST = lazy_compile(rf"{_LIMIT}.{{0,60}}?{_REQUEST}", re.IGNORECASE)
_REQUEST_FIRST = lazy_compile(rf"{_REQUEST}.{{0,60}}?{_LIMIT}", re.IGNORECASE)

_CAN = r"(?:at most|up to|only|no more than|limited to|(?:accept|support|handle|process|take|allow|fit)\w*)"
_HAS = r"(?:found|got|sent|given|received|provided|passed|ha[sd]|have|contain\w*|was|were|is|are|with|of)"
_CAPACITY_FIRST = lazy_compile(
    rf"\b{_CAN} (?:(?!least)[a-z]{{1,12}} ){{0,3}}{_NUMBER} (?:input |prompt )?tokens"
    rf".{{0,40}}?\b{_HAS}\b[^\d.]{{0,20}}{_NUMBER}",
    re.IGNORECASE,
)
_COUNT_FIRST = lazy_compile(
    rf"\b{_HAS} {_NUMBER} (?:input |prompt )?tokens.{{0,40}}?\b{_CAN}\b[^\d.]{{0,20}}{_NUMBER}", re.IGNORECASE
)
"""A number of tokens that a model can take and a number that it got; an overflow if that is greater."""

_MIN_CAPACITY = 256


def exceeded_limit(
    codes: str, message: str, *, provider: str, status: int | None
) -> Literal["context_overflow", "provider.rate_limited"] | None:
    """Return the code for a limit that an error names: of the input, or of requests or tokens in some time; else None.

    `codes` are the provider's type and code, joined by blanks; `provider` is its name in the catalogue, "" if unknown;
    `status` is the HTTP response's, None for an error in a reply.

    >>> text = "Request too large on tokens per minute (TPM): Limit 8000, Requested 18478"
    >>> exceeded_limit("tokens rate_limit_exceeded", text, provider="groq", status=413)
    'context_overflow'
    """
    message = message[:_MAX_CHARS]
    named = None if _is_about_output(message) else _two_numbers(_LIMIT_FIRST, _REQUEST_FIRST, message)
    if named is not None and named[1] > named[0]:
        return "context_overflow"  # the request alone is over the limit of a minute, so that waiting does not help
    if exceeds_account_limit(message):
        return "context_overflow"
    if status == 429 or "rate_limit" in codes or named is not None:
        return "provider.rate_limited"
    if status == 413 or _is_overflow(codes, message, provider, status):
        return "context_overflow"
    return None


def exceeds_account_limit(message: str) -> bool:
    """Return whether the account may only make smaller requests; the status may be a missing permission's."""
    return _ACCOUNT_LIMIT.search(message[:_MAX_CHARS]) is not None


def _is_overflow(codes: str, message: str, provider: str, status: int | None) -> bool:
    """Return whether an error, not one of a rate, says that there is too much input for the model."""
    own_code = _PROVIDER_CODES.get(provider)
    if _CODE.search(codes) or (own_code and any(map(own_code.search, codes.split()))):
        return True
    if not message:
        return status == 400 and provider in _PROVIDERS_WITHOUT_REASON
    if _CODE.search(message):
        return True
    if _RATE.search(message) or _is_about_output(message):
        return False
    if _WORDING.search(message):
        return True
    capacity = _two_numbers(_CAPACITY_FIRST, _COUNT_FIRST, message)
    if capacity is not None and capacity[1] > capacity[0] >= _MIN_CAPACITY:
        return True
    return any(not _OTHER_PART.search(_clause(message, found)) for found in _SENTENCE.finditer(message))


def _clause(message: str, found: re.Match[str]) -> str:
    """Return a match with the words around it, up to the ends of the sentence."""
    before = message[max(0, found.start() - _CLAUSE_CHARS) : found.start()]
    after = message[found.end() : found.end() + _CLAUSE_CHARS]
    return _SENTENCE_END.split(before)[-1] + found[0] + _SENTENCE_END.split(after)[0]


def _two_numbers(limit_first: re.Pattern[str], limit_last: re.Pattern[str], message: str) -> tuple[float, float] | None:
    """Return the limit and the number to compare with it that either pattern finds in `message`."""
    if found := limit_first.search(message):
        return _number(found[1]), _number(found[2])
    if found := limit_last.search(message):
        return _number(found[2]), _number(found[1])
    return None


def _number(text: str) -> float:
    """Return the value of a number like `8,192`, `8k` or `1.2 M`."""
    factor = {"k": 1e3, "m": 1e6}.get(text[-1].lower(), 1.0)
    return float(text.rstrip("kKmM ").replace(",", "")) * factor


def _is_about_output(message: str) -> bool:
    """Return whether the requested output is too large: it is all that is named, or leaves no room for any input."""
    if _OUTPUT.search(message) and not _INPUT.search(message):
        return True
    counts = [int(count) for found in _OUTPUT_COUNT.finditer(message) for count in found.groups() if count]
    total = _TOTAL.search(message)
    return total is not None and max(counts, default=0) >= int(total[1])
