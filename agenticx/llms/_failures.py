"""What a provider's complaint means: from status, headers and body, or an error inside a stream, to a `ModelError`.

Shared by all wires and free of I/O. Bodies seen in the wild, all read here: `{"error": {message, type, code}}`
(OpenAI, vLLM, LM Studio, llama.cpp), `{"error": "text"}` (Ollama, gateways), `{message, type, code}` (older vLLM),
`{"detail": …}` (FastAPI, Mistral), `{error_type, error_message}` (Venice), a list around any of them (Gemini), HTML;
bodies of refusals alone: `{"message": …}` (Cohere, Bedrock), `{"Message": …}` (Amazon's gateways).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast
from urllib.parse import urlsplit

from agenticx.errors import ModelError, ModelErrorCode
from agenticx.messages import clean_text
from agenticx.secret_names import is_real_key

__all__ = [
    "COMPRESSED",
    "Complaint",
    "body_complaint",
    "complaint_in",
    "hide_secrets",
    "refused_prompt",
    "status_error",
    "stream_error",
    "without_secrets",
]

_LONGEST_MESSAGE = 600
_LONGEST_WORD = 200
_LOOKED_AT = 64 * 1024  # characters of a message that may have markup in it
_LONGEST_TARGET = 200
_BEGINNING = range(8, 12 + 1)
"""Characters by which a long key is known, half of it if that is in here: what was cut may have less of it than all."""

_RETRYABLE: frozenset[ModelErrorCode] = frozenset({"provider.rate_limited", "provider.overloaded"})

_OVERFLOW = re.compile(
    r"context[ _-]?(length|window|size|limit)[ _-]?(exceed|overflow)"
    r"|maximum (context|input|prompt) length|(exceed\w*|larger than|longer than|beyond|only|is) .{0,60}context"
    r"|context (size|length|window) (has been |was |is )?(exceed|only)|context the overflows|exceed_context_size"
    r"|(prompt|input|request) (is )?too (long|many tokens)|too many (input )?tokens|reduce the length"
    r"|request_too_large|range of input length|input (length|token count) .{0,40}exceed|token limit (reached|exceeded)"
    r"|max_model_len",
    re.IGNORECASE,
)
_WORDS: dict[ModelErrorCode, re.Pattern[str]] = {
    "provider.rate_limited": re.compile(r"rate_?limit|too_?many_?requests|quota|resource_exhausted|throttl", re.I),
    "provider.content_filter": re.compile(r"content_?filter|content_?policy|responsible_?ai|safety", re.I),
    "provider.auth": re.compile(r"auth|permission|api_?key|forbidden|billing|credit", re.I),
    "provider.overloaded": re.compile(r"overload|unavailable|server_?error|internal|api_error|timeout", re.I),
    "provider.bad_request": re.compile(r"invalid|bad_?request|not_?found|unsupported|unprocessable", re.I),
}
_TAG = re.compile(r"<(/?[a-z]*)[^<>]*>", re.IGNORECASE)  # linear: none begins inside another
_UNSEEN = r"(?:[^!-~]|</?[a-z][^<>]{0,80}>)*"  # between the letters of a quoted key: nothing that is seen
_ACCOUNT = re.compile(r"insufficient_quota|billing|credit|balance", re.IGNORECASE)
_BAD_KEY = re.compile(r"api_key_(invalid|expired|not_found)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Complaint:
    """A provider's own words. `type` is its type, else its code as text; `param` the request field it names.

    `reason` and `retry_after` (seconds) are what Google has in the details of an error.
    """

    message: str = ""
    type: str | None = None
    code: str | None = None
    param: str | None = None
    reason: str | None = None
    retry_after: float | None = None

    @property
    def words(self) -> str:
        """Type, code and reason, for matching."""
        return f"{self.type or ''} {self.code or ''} {self.reason or ''}"


COMPRESSED = Complaint("(its reason is compressed, which it was asked not to be)")


def status_error(
    status: int, headers: Mapping[str, str], complaint: Complaint, *, who: str, base_hint: str = ""
) -> ModelError:
    """The error for an HTTP answer of 300 or more; `headers` has lower-case names.

    `base_hint` says how base URLs of this wire look.
    """
    code = _code_of_status(status, complaint)
    said = f": {complaint.message}" if complaint.message else ""
    return ModelError(
        f"{who} answered with HTTP {status}{said}{_advice(status, headers, base_hint)}",
        code=code,
        provider_type=complaint.type,
        status=status,
        retryable=code in _RETRYABLE and not _ACCOUNT.search(complaint.words),
        retry_after=_retry_after(headers, complaint),
    )


def stream_error(complaint: Complaint, *, who: str) -> ModelError:
    """The error for a complaint inside an answer whose status was 200."""
    code = _code_of_words(complaint)
    return ModelError(
        f"{who} reported an error in its reply: {complaint.message or complaint.type or 'no reason given'}",
        code=code,
        provider_type=complaint.type,
        retryable=code in _RETRYABLE and not _ACCOUNT.search(complaint.words),
        retry_after=complaint.retry_after,
    )


def refused_prompt(complaint: Complaint, *, who: str) -> ModelError:
    """The error for a prompt that the provider does not answer, which it says in an answer whose status was 200."""
    said = f": {complaint.message}" if complaint.message else ""
    return ModelError(
        f"{who} refuses the prompt ({complaint.type}){said}",
        code="provider.content_filter",
        provider_type=complaint.type,
    )


def body_complaint(body: bytes) -> Complaint:
    """The complaint in the body of an error answer, whatever its format."""
    text = clean_text(body.decode("utf-8", "replace"))
    try:
        value = json.loads(text)
        found = complaint_in(value) or _bare_message(value)
    except (ValueError, RecursionError):
        found = None
    return found or Complaint(message=_plain(text))


def complaint_in(value: object) -> Complaint | None:
    """The complaint that a parsed body or event carries, None when it carries none."""
    if isinstance(value, list):
        for item in cast("list[object]", value):
            return complaint_in(item)
        return None
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, Any]", value)
    if error := fields.get("error"):
        return _complaint(error, outer=fields)
    if fields.get("choices"):
        return None
    for name in ("error_message", "detail", "errors"):
        if fields.get(name):
            return _complaint(fields[name], outer=fields)
    if fields.get("object") == "error" or _is_bare_complaint(fields):
        return _complaint(fields, outer={})
    return None


def _is_bare_complaint(fields: dict[str, Any]) -> bool:
    """Whether an object with a message is a complaint; a chunk with one, and a warning, let the reply go on."""
    if not fields.get("message") or "choices" in fields or fields.get("type") in ("warning", "info"):
        return False
    return "code" in fields or "type" in fields


def _bare_message(value: object) -> Complaint | None:
    """The complaint in the body of a refusal that is nothing but a message."""
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    said = next((fields[name] for name in ("message", "Message") if isinstance(fields.get(name), str)), "")
    return _complaint({**fields, "message": said}, outer={}) if said else None


def hide_secrets(error: ModelError, secrets: Iterable[str]) -> ModelError:
    """The same error, no longer than a person reads, without secrets: fit for the screen, for events and logs."""
    secrets = tuple(secrets)
    error.args = (_cut(without_secrets(str(error), secrets), 4 * _LONGEST_MESSAGE, "…"),)
    error.provider_type = error.provider_type and without_secrets(error.provider_type, secrets)
    return error


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """`text` with each secret that it quotes replaced, also a long one that was cut; `ollama` and such are none.

    A secret is known whatever stands unseen between its letters: markup, spaces, characters that have no width.
    """
    for secret in secrets:
        if is_real_key(secret):
            half = min(len(secret) // 2, _BEGINNING[-1])
            beginning = secret[:half] if half in _BEGINNING else secret
            quoted = re.compile(_UNSEEN.join(map(re.escape, beginning)))
            text = _without_secret(text, quoted, secret[len(beginning) :])
    return text


def _without_secret(text: str, beginning: re.Pattern[str], rest: str) -> str:
    pieces: list[str] = []
    at = 0
    while found := beginning.search(text, at):
        pieces.append(text[at : found.start()])
        at = _end_of_secret(text, found.end(), rest)
    return "[key]".join([*pieces, text[at:]])


def _end_of_secret(text: str, end: int, rest: str) -> int:
    """Where what goes on like `rest` at `end` does so no more."""
    for letter in rest:
        found = re.compile(_UNSEEN + re.escape(letter)).match(text, end)
        if found is None:
            break
        end = found.end()
    return end


def _code_of_status(status: int, complaint: Complaint) -> ModelErrorCode:
    if status in (401, 402, 403) or _BAD_KEY.search(complaint.words):
        return "provider.auth"
    if status == 429 or "rate_limit" in complaint.words:
        return "provider.rate_limited"
    if status == 413 or _overflows(complaint):
        return "context_overflow"
    if status in (408, 409, 425) or (status >= 500 and status != 501):
        return "provider.overloaded"
    if _matches(complaint) == "provider.content_filter":
        return "provider.content_filter"
    return "provider.bad_request"


def _code_of_words(complaint: Complaint) -> ModelErrorCode:
    status = complaint.code if complaint.code is not None else complaint.type
    if status and re.fullmatch(r"[45]\d\d", status):
        return _code_of_status(int(status), complaint)
    if _overflows(complaint):
        return "context_overflow"
    return _matches(complaint) or "provider.bad_reply"


def _overflows(complaint: Complaint) -> bool:
    return bool(_OVERFLOW.search(complaint.words) or _OVERFLOW.search(complaint.message))


def _matches(complaint: Complaint) -> ModelErrorCode | None:
    return next((code for code, words in _WORDS.items() if words.search(complaint.words)), None)


def _complaint(error: object, *, outer: Mapping[str, Any]) -> Complaint:
    if not isinstance(error, dict):
        fields: Mapping[str, Any] = {"message": error, "type": outer.get("error_type") or outer.get("type")}
        fields = {**fields, "code": outer.get("code"), "param": outer.get("param")}
    else:
        fields = cast("dict[str, Any]", error)
    code = _word(fields.get("code"))
    return Complaint(
        message=_plain(next((fields[name] for name in ("message", "msg", "detail") if fields.get(name)), "")),
        type=_word(fields.get("type")) or _word(fields.get("status")) or code,
        code=code,
        param=_word(fields.get("param")),
        reason=_word(_detail(fields, "reason")),
        retry_after=_seconds(_text(_detail(fields, "retryDelay")).removesuffix("s")),
    )


def _detail(fields: Mapping[str, Any], name: str) -> object:
    """What Google's list of details has under `name`."""
    details = fields.get("details")
    rows = cast("list[object]", details) if isinstance(details, list) else []
    found = (cast("dict[str, Any]", row).get(name) for row in rows if isinstance(row, dict))
    return next((value for value in found if value is not None), None)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _word(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return _plain(value, _LONGEST_WORD) or None


def _plain(value: object, limit: int = _LONGEST_MESSAGE) -> str:
    """Any value as one short line without markup or control characters, cut between words: a key is none or whole."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if text.lstrip()[:1] == "<":
        text = _without_markup(text[:_LOOKED_AT])
    text = "".join(char if char.isprintable() else " " for char in _cut(text, 8 * _LONGEST_MESSAGE))
    return _cut(" ".join(text.split()), limit, "…")


def _without_markup(text: str) -> str:
    """`text` with a space for each tag, and for scripts and styles with all that is in them; linear."""
    kept: list[str] = []
    at, closing = 0, ""
    for tag in _TAG.finditer(text):
        name = tag[1].lower()
        if closing and name != closing:
            continue
        kept.append("" if closing else text[at : tag.start()])
        at, closing = tag.end(), f"/{name}" if name in ("script", "style") else ""
    return " ".join([*kept, text[at:]])


def _cut(text: str, limit: int, mark: str = "") -> str:
    """The first words of `text`; the first characters where it is a single long one."""
    if len(text) <= limit:
        return text
    words = re.match(rf"(?s).{{0,{limit}}}(?=\s)", text)
    return (words[0] if words and words[0].strip() else text[:limit]) + mark


def _retry_after(headers: Mapping[str, str], complaint: Complaint) -> float | None:
    """Seconds until the provider wants to be asked again.

    `retry-after-ms`, else `retry-after` (seconds or a date), else what the complaint says.
    """
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _seconds(text)
    if seconds is not None or text is None:
        return complaint.retry_after if seconds is None else seconds
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, IndexError, OverflowError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _seconds(text: str | None) -> float | None:
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _advice(status: int, headers: Mapping[str, str], base_hint: str) -> str:
    if 300 <= status < 400:
        target = _target(headers)
        points = (
            "this one points to no base URL" if target is None else f"set the base URL to where it points: {target}"
        )
        return f"; redirects are not followed, {points}"
    if status in (404, 405):
        hint = f" ({base_hint})" if base_hint else ""
        return f"; are the base URL{hint} and the model's name right?"
    return ""


def _target(headers: Mapping[str, str]) -> str | None:
    """Where a redirect points, without login and query, if that can be a base URL: http(s), short, visible."""
    try:
        parts = urlsplit(headers.get("location", ""))
        place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    except ValueError:
        return None
    fits = parts.scheme in ("http", "https") and place.isprintable() and len(place) <= _LONGEST_TARGET
    return place if fits and parts.hostname else None
