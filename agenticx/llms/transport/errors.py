"""Translation of providers' errors, in HTTP responses and inside streams, to `ModelError`.

Shared by all wires and free of I/O. Bodies seen in the wild, all read here: `{"error": {message, type, code}}`
(OpenAI, vLLM, LM Studio, llama.cpp), `{"error": "text"}` (Ollama, gateways), `{message, type, code}` (older vLLM),
`{"detail": …}` (FastAPI, Mistral), `{error_type, error_message}` (Venice), a list around any of them (Gemini), HTML;
bodies of error responses only: `{"message": …}` (Cohere, Bedrock), `{"Message": …}` (Amazon's gateways).
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
from agenticx.llms.file_refusals import is_undecodable
from agenticx.llms.transport.overflow import exceeded_limit, exceeds_account_limit
from agenticx.messages import clean_text
from agenticx.secret_detection import is_real_key

__all__ = [
    "COMPRESSED_BODY",
    "ErrorReport",
    "blocked_prompt_error",
    "find_error",
    "hide_secrets",
    "parse_error_body",
    "status_error",
    "stream_error",
    "without_secrets",
]

_MAX_MESSAGE_CHARS = 600
_MAX_WORD_CHARS = 200
_MAX_MARKUP_CHARS = 64 * 1024  # characters of a message that may have markup in it
_MAX_TARGET_CHARS = 200
_PREFIX_LENGTHS = range(8, 12 + 1)
"""A long key is recognised by a prefix of such a length, half of the key if that is in the range.

A prefix is enough because a shortened message may contain only the beginning of a key.
"""

_RETRYABLE: frozenset[ModelErrorCode] = frozenset({"provider.rate_limited", "provider.overloaded"})

_CODE_PATTERNS: dict[ModelErrorCode, re.Pattern[str]] = {
    "provider.rate_limited": re.compile(r"rate_?limit|too_?many_?requests|quota|resource_exhausted|throttl", re.I),
    "provider.content_filter": re.compile(r"content_?filter|content_?policy|responsible_?ai|safety", re.I),
    "provider.auth": re.compile(r"auth|permission|api_?key|forbidden|billing|credit", re.I),
    "provider.overloaded": re.compile(r"overload|unavailable|server_?error|internal|api_error|timeout", re.I),
    "provider.bad_request": re.compile(r"invalid|bad_?request|not_?found|unsupported|unprocessable|image", re.I),
}
_TAG = re.compile(r"<(/?[a-z]*)[^<>]*>", re.IGNORECASE)  # linear: none begins inside another
_INVISIBLE = r"(?:[^!-~]|</?[a-z][^<>]{0,80}>)*"  # may be between the letters of a quoted key
_BILLING = re.compile(r"insufficient_quota|billing|credit|balance", re.IGNORECASE)
_NAMES_PATH = re.compile(r"/(responses|chat/completions)\b", re.IGNORECASE)
_NAMES_MODEL = re.compile(r"model|deployment|engine|\bfile", re.IGNORECASE)
_UNKNOWN_PATH = re.compile(
    r"(unknown|unsupported|unrecogni[sz]ed|invalid|no such|no matching) (request )?(url|path)\b.{0,80}/responses\b"
    r"|(unknown|unsupported|unrecogni[sz]ed|no such|no matching) (route|endpoint)\b"
    r"|(\b(route|endpoint)|responses( api)?)\b.{0,30}(unknown|not (found|supported|available|implemented|exist))"
    r"|cannot post \S{0,200}/responses\b",
    re.IGNORECASE,
)
"""Messages about a path that does not exist, with status 400."""
_BAD_KEY = re.compile(r"api_key_(invalid|expired|not_found)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """An error as a provider reports it. `type` is its type, else its code as text; `param` the request field it names.

    `reason` and `retry_after` (seconds) come from the details of Google's errors.
    """

    message: str = ""
    type: str | None = None
    code: str | None = None
    param: str | None = None
    reason: str | None = None
    retry_after: float | None = None

    @property
    def search_text(self) -> str:
        """Type, code and reason, for matching."""
        return f"{self.type or ''} {self.code or ''} {self.reason or ''}"


COMPRESSED_BODY = ErrorReport("(the body is compressed although the request forbids it, so the reason is unknown)")


def status_error(
    status: int, headers: Mapping[str, str], report: ErrorReport, *, label: str, base_url_hint: str = ""
) -> ModelError:
    """Return the error for an HTTP response with status 300 or more; `headers` has lower-case names.

    `base_url_hint` describes the base URLs of this wire.
    """
    code = _code_from_status(status, report, label)
    reason = f": {report.message}" if report.message else ""
    return ModelError(
        f"{label} answered with HTTP {status}{reason}{_hint(status, headers, base_url_hint)}",
        code=code,
        provider_type=report.type,
        status=status,
        retryable=code in _RETRYABLE and not _BILLING.search(report.search_text),
        retry_after=_retry_after(headers, report),
        lacks_endpoint=_lacks_endpoint(status, report),
        param=report.param,
    )


def stream_error(report: ErrorReport, *, label: str) -> ModelError:
    """Return the error for a report inside a response with status 200."""
    code = _code_from_report(report, label)
    return ModelError(
        f"{label} reported an error in its reply: {report.message or report.type or 'no reason given'}",
        code=code,
        provider_type=report.type,
        retryable=code in _RETRYABLE and not _BILLING.search(report.search_text),
        retry_after=report.retry_after,
        param=report.param,
    )


def blocked_prompt_error(report: ErrorReport, *, label: str) -> ModelError:
    """Return the error for a prompt that the provider blocks, as reported in a response with status 200."""
    reason = f": {report.message}" if report.message else ""
    return ModelError(
        f"{label} refuses the prompt ({report.type}){reason}",
        code="provider.content_filter",
        provider_type=report.type,
    )


def parse_error_body(body: bytes) -> ErrorReport:
    """Return the error in the body of an error response, whatever its format."""
    text = clean_text(body.decode("utf-8", "replace"))
    try:
        value = json.loads(text)
        report = find_error(value) or _message_only_error(value)
    except (ValueError, RecursionError):
        report = None
    return report or ErrorReport(message=_single_line(text))


def find_error(value: object) -> ErrorReport | None:
    """Return the error in a parsed body or event, None if there is none."""
    if isinstance(value, list):
        for item in cast("list[object]", value):
            return find_error(item)
        return None
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, Any]", value)
    if error := fields.get("error"):
        return _report_from(error, outer=fields)
    if fields.get("choices"):
        return None
    for name in ("error_message", "detail", "errors"):
        if fields.get(name):
            return _report_from(fields[name], outer=fields)
    if fields.get("object") == "error" or _is_bare_error(fields):
        return _report_from(fields, outer={})
    return None


def _is_bare_error(fields: dict[str, Any]) -> bool:
    """Return whether an object with a message is an error; a chunk with a message and a warning are none."""
    if not fields.get("message") or "choices" in fields or fields.get("type") in ("warning", "info"):
        return False
    return "code" in fields or "type" in fields


def _message_only_error(value: object) -> ErrorReport | None:
    """Return the error in the body of an error response that has only a message, None if there is none."""
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    message = next((fields[name] for name in ("message", "Message") if isinstance(fields.get(name), str)), "")
    return _report_from({**fields, "message": message}, outer={}) if message else None


def hide_secrets(error: ModelError, secrets: Iterable[str]) -> ModelError:
    """Return the same error without secrets and with a shortened message, for display, events and logs."""
    secrets = tuple(secrets)
    error.args = (_shorten(without_secrets(str(error), secrets), 4 * _MAX_MESSAGE_CHARS, "…"),)
    error.provider_type = error.provider_type and without_secrets(error.provider_type, secrets)
    error.param = error.param and without_secrets(error.param, secrets)
    return error


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return `text` with each secret in it replaced, also where a long secret was cut short.

    A placeholder key such as `ollama` is no secret. A secret is recognised also with invisible text between its
    letters: markup, spaces, characters without width.
    """
    for secret in secrets:
        if is_real_key(secret):
            half = min(len(secret) // 2, _PREFIX_LENGTHS[-1])
            prefix = secret[:half] if half in _PREFIX_LENGTHS else secret
            quoted = re.compile(_INVISIBLE.join(map(re.escape, prefix)))
            text = _without_secret(text, quoted, secret[len(prefix) :])
    return text


def _without_secret(text: str, prefix: re.Pattern[str], rest: str) -> str:
    fragments: list[str] = []
    position = 0
    while found := prefix.search(text, position):
        fragments.append(text[position : found.start()])
        position = _end_of_secret(text, found.end(), rest)
    return "[key]".join([*fragments, text[position:]])


def _end_of_secret(text: str, end: int, rest: str) -> int:
    """Return the end of the letters of `rest` in `text`, read from `end` on."""
    for letter in rest:
        found = re.compile(_INVISIBLE + re.escape(letter)).match(text, end)
        if found is None:
            break
        end = found.end()
    return end


def _code_from_status(status: int, report: ErrorReport, label: str) -> ModelErrorCode:
    is_refused = status in (401, 402, 403) or bool(_BAD_KEY.search(report.search_text))
    if is_refused and not exceeds_account_limit(report.message):
        return "provider.auth"
    if (exceeded := _exceeded_limit(report, label, status)) is not None:
        return exceeded
    if status >= 500 and is_undecodable(report.message):
        return "provider.bad_request"
    if status in (408, 409, 425) or (status >= 500 and status != 501):
        return "provider.overloaded"
    if _code_from_patterns(report) == "provider.content_filter":
        return "provider.content_filter"
    return "provider.bad_request"


def _lacks_endpoint(status: int, report: ErrorReport) -> bool:
    """Return whether the server does not know the path, rather than the model or a file that the request names."""
    if status in (404, 405, 501):
        text = f"{report.search_text} {report.message}"
        return "model_not_found" not in text and bool(_NAMES_PATH.search(text) or not _NAMES_MODEL.search(text))
    return status == 400 and bool(_UNKNOWN_PATH.search(report.message))


def _code_from_report(report: ErrorReport, label: str) -> ModelErrorCode:
    status = report.code if report.code is not None else report.type
    if status and re.fullmatch(r"[45]\d\d", status):
        return _code_from_status(int(status), report, label)
    if (exceeded := _exceeded_limit(report, label)) is not None:
        return exceeded
    if is_undecodable(report.message):
        return "provider.bad_request"
    return _code_from_patterns(report) or "provider.bad_reply"


def _exceeded_limit(report: ErrorReport, label: str, status: int | None = None) -> ModelErrorCode | None:
    return exceeded_limit(report.search_text, report.message, provider=label.partition(":")[0], status=status)


def _code_from_patterns(report: ErrorReport) -> ModelErrorCode | None:
    return next((code for code, pattern in _CODE_PATTERNS.items() if pattern.search(report.search_text)), None)


def _report_from(error: object, *, outer: Mapping[str, Any]) -> ErrorReport:
    if not isinstance(error, dict):
        fields: Mapping[str, Any] = {"message": error, "type": outer.get("error_type") or outer.get("type")}
        fields = {**fields, "code": outer.get("code"), "param": outer.get("param")}
    else:
        fields = cast("dict[str, Any]", error)
    code = _short_text(fields.get("code"))
    message = _single_line(next((fields[name] for name in ("message", "msg", "detail") if fields.get(name)), ""))
    return ErrorReport(
        message=_single_line(f"{message}: {origin}") if (origin := _origin_message(fields, message)) else message,
        type=_short_text(fields.get("type")) or _short_text(fields.get("status")) or code,
        code=code,
        param=_short_text(fields.get("param")),
        reason=_short_text(_google_detail(fields, "reason")),
        retry_after=_seconds(_text(_google_detail(fields, "retryDelay")).removesuffix("s")),
    )


def _origin_message(fields: Mapping[str, Any], message: str) -> str:
    """Return the message of the provider behind OpenRouter, "" if there is none that `message` does not contain."""
    metadata = fields.get("metadata")
    raw = cast("dict[str, Any]", metadata).get("raw") if isinstance(metadata, dict) else None
    if not raw:
        return ""
    try:
        value = json.loads(raw[:_MAX_MARKUP_CHARS]) if isinstance(raw, str) else raw
        report = find_error(value) or _message_only_error(value)
    except (ValueError, RecursionError):
        report = None
    origin = report.message if report else _single_line(raw)
    return "" if origin in message else origin


def _google_detail(fields: Mapping[str, Any], name: str) -> object:
    """Return the first value of `name` in Google's list of error details, None if there is none."""
    details = fields.get("details")
    entries = cast("list[object]", details) if isinstance(details, list) else []
    values = (cast("dict[str, Any]", entry).get(name) for entry in entries if isinstance(entry, dict))
    return next((value for value in values if value is not None), None)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _short_text(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return _single_line(value, _MAX_WORD_CHARS) or None


def _single_line(value: object, limit: int = _MAX_MESSAGE_CHARS) -> str:
    """Return any value as one short line without markup or control characters.

    It is cut between words, so that a key is left out or whole, and is recognised later.
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if text.lstrip()[:1] == "<":
        text = _without_markup(text[:_MAX_MARKUP_CHARS])
    text = "".join(char if char.isprintable() else " " for char in _shorten(text, 8 * _MAX_MESSAGE_CHARS))
    return _shorten(" ".join(text.split()), limit, "…")


def _without_markup(text: str) -> str:
    """Return `text` with a space in place of each tag and of each whole script and style; linear."""
    fragments: list[str] = []
    position, closing = 0, ""
    for tag in _TAG.finditer(text):
        name = tag[1].lower()
        if closing and name != closing:
            continue
        fragments.append("" if closing else text[position : tag.start()])
        position, closing = tag.end(), f"/{name}" if name in ("script", "style") else ""
    return " ".join([*fragments, text[position:]])


def _shorten(text: str, limit: int, ellipsis: str = "") -> str:
    """Return the first words of `text`, or its first characters if it is a single long word."""
    if len(text) <= limit:
        return text
    words = re.match(rf"(?s).{{0,{limit}}}(?=\s)", text)
    return (words[0] if words and words[0].strip() else text[:limit]) + ellipsis


def _retry_after(headers: Mapping[str, str], report: ErrorReport) -> float | None:
    """Return the seconds until the provider accepts another request, None if unknown.

    The source is `retry-after-ms`, else `retry-after` (seconds or a date), else the error report.
    """
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _seconds(text)
    if seconds is not None or text is None:
        return report.retry_after if seconds is None else seconds
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


def _hint(status: int, headers: Mapping[str, str], base_url_hint: str) -> str:
    if 300 <= status < 400:
        target = _redirect_target(headers)
        advice = (
            "this one points to no base URL" if target is None else f"set the base URL to where it points: {target}"
        )
        return f"; redirects are not followed, {advice}"
    if status in (404, 405):
        hint = f" ({base_url_hint})" if base_url_hint else ""
        return f"; are the base URL{hint} and the model's name right?"
    return ""


def _redirect_target(headers: Mapping[str, str]) -> str | None:
    """Return the target of a redirect without login and query, None if it cannot be a base URL.

    A base URL is http or https, printable and at most 200 characters long.
    """
    try:
        parts = urlsplit(headers.get("location", ""))
        url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    except ValueError:
        return None
    is_base_url = parts.scheme in ("http", "https") and url.isprintable() and len(url) <= _MAX_TARGET_CHARS
    return url if is_base_url and parts.hostname else None
