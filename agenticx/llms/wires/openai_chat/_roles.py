"""The order of roles that Mistral and strict chat templates require: passes over rows.

Most servers take rows in any order. These refuse a user's row behind a result (Mistral: "Unexpected role 'user' after
role 'tool'"), two rows of one role behind each other, and instructions anywhere but in the first row (templates:
"roles must alternate user/assistant/user/assistant/…"). Such rows are common: a turn that was stopped, steered or
failed leaves them, a compaction, and each speech of a team.

Each pass takes rows and returns rows. Their additions are the same in every request, so that the providers' prompt
caches apply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agenticx.lazy_patterns import lazy_compile
from agenticx.llms.downgrades import refuses_role

__all__ = ["ROLE_REFUSALS", "STOPPED", "RoleRefusal", "alternating_rows", "rows_without_system"]

STOPPED = "(stopped)"
"""The text of an assistant's row between a result and a user's row; servers refuse an empty one."""

_FIRST_USER_TEXT, _LAST_USER_TEXT = "[The conversation begins here.]", "[Go on.]"
"""A user's row for a history that does not begin or end with one."""

_SYSTEM_NOTE = "[system note] "

Row = dict[str, Any]


def alternating_rows(rows: Sequence[Row], stopped: Row) -> list[Row]:
    """Return `rows` with the roles in alternation; `stopped` is the assistant's row to put between tool and user."""
    passes: tuple[Callable[[list[Row]], list[Row]], ...] = (
        _with_one_system_row,  # before the others, as it makes user's rows of later ones
        lambda rows: _with_answers_to_results(rows, stopped),
        _with_neighbours_joined,
        _between_users,
    )
    result = list(rows)
    for apply in passes:
        result = apply(result)
    return result


def rows_without_system(rows: Sequence[Row]) -> list[Row]:
    """Return alternating `rows` with the instructions in the user's first row, for templates without a place for them.

    >>> rows_without_system([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    [{'role': 'user', 'content': 'Be brief.\\n\\nHi'}]
    """
    if not rows or rows[0]["role"] != "system":
        return list(rows)
    return _with_neighbours_joined([{**rows[0], "role": "user"}, *rows[1:]])


def _with_one_system_row(rows: list[Row]) -> list[Row]:
    """Join the leading system rows; make a later one a note in the user's role, as in sanitized histories."""
    count = next((index for index, row in enumerate(rows) if row["role"] != "system"), len(rows))
    later = [_as_note(row) if row["role"] == "system" else row for row in rows[count:]]
    leading = "\n\n".join(text for row in rows[:count] if (text := row["content"]))
    return [{"role": "system", "content": leading}, *later] if leading else later


def _as_note(row: Row) -> Row:
    return {"role": "user", "content": f"{_SYSTEM_NOTE}{row['content']}"}


def _with_answers_to_results(rows: list[Row], stopped: Row) -> list[Row]:
    """Put `stopped` between a result and a row of the user."""
    result: list[Row] = []
    for row in rows:
        if row["role"] == "user" and result and result[-1]["role"] == "tool":
            result.append(stopped)
        result.append(row)
    return result


def _with_neighbours_joined(rows: list[Row]) -> list[Row]:
    """Join adjacent rows of the user, and of the assistant; calls end a row."""
    groups: list[list[Row]] = []
    for row in rows:
        last = groups[-1][-1] if groups else None
        if last is not None and row["role"] == last["role"] in ("user", "assistant") and not last.get("tool_calls"):
            groups[-1].append(row)
        else:
            groups.append([row])
    return [_joined(group) for group in groups]


def _between_users(rows: list[Row]) -> list[Row]:
    """Add a row of the user after the instructions and at the end, if the assistant's is there."""
    has_system = bool(rows) and rows[0]["role"] == "system"
    if len(rows) == has_system or rows[has_system]["role"] != "user":
        rows = [*rows[:has_system], {"role": "user", "content": _FIRST_USER_TEXT}, *rows[has_system:]]
    is_answered = rows[-1]["role"] == "assistant" and not rows[-1].get("tool_calls")
    return [*rows, {"role": "user", "content": _LAST_USER_TEXT}] if is_answered else rows


# --- rows of one role


def _joined(rows: list[Row]) -> Row:
    """Return one row with the texts, parts, calls and reasoning of rows of one role."""
    if len(rows) == 1:
        return rows[0]
    names = dict.fromkeys(name for row in rows for name in row if name != "role")
    values = {name: [value for row in rows if (value := row.get(name))] for name in names}
    return {"role": rows[0]["role"], **{name: _joined_values(values[name], rows[-1].get(name)) for name in names}}


def _joined_values(values: list[Any], default: Any) -> Any:
    """Return texts as one text, lists (also with texts) as one list, and the last of other values."""
    if len(values) < 2:
        return values[0] if values else default
    if all(isinstance(value, str) for value in values):
        return "\n\n".join(values)
    if not all(isinstance(value, str | list) for value in values):
        return default
    return [part for value in values for part in (_text_parts(value) if isinstance(value, str) else value)]


def _text_parts(text: str) -> list[Row]:
    return [{"type": "text", "text": text}]


# --- refusals ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RoleRefusal:
    """The words of a server's refusal of an order of roles, and the changes of the dialect that help."""

    words: re.Pattern[str]
    changes: dict[str, bool]
    log_message: str


ROLE_REFUSALS = (
    RoleRefusal(
        lazy_compile(
            # Mistral, and servers that use its tokenizer: "Unexpected role 'user' after role 'tool'"
            r"(un)?expected (last |message )?role|invalid_request_message_order"
            # the templates of Gemma, Mistral, Devstral and others, as llama.cpp, vLLM, SGLang and LM Studio report
            # them; Perplexity, Bedrock, Gemini and Anthropic behind gateways
            r"|(role|user|assistant|message|request|conversation)\w*.{0,80}\balternat(e|ing)\b"
            r"|(consecutive|successive) .{0,30}(message|role|turn)|same role|roles? in a row|(role|message) order"
            r"|(user|tool|assistant) (message|role|turn)s? (can ?not|can't|must|should|may not) .{0,20}follow"
            r"|\b(user|assistant)\b.{0,60}\b(after|follows?|following)\b.{0,20}\btool\b(?! calls?)"
            r"|\btool\b.{0,40}\bfollowed by (an? |the )?['\"`]?(assistant|model)\b"
            r"|\bafter (an? |the )?['\"`]?tool\b.{0,30}\bonly (an? )?['\"`]?assistant|\bmultiple user (message|turn)s"
            r"|\broles? sequence|sequence of (the )?(message )?roles|order of (the )?(message )?roles"
            r"|\b(user|assistant|model) (message|role|turn)s? (is |are |was |were )?(repeated|duplicated)"
            r"|\b(repeated|duplicated?|adjacent|back.to.back|two) ['\"`]?(user|assistant|model)['\"`]? "
            r"(role|message|turn)"
            # instructions anywhere but in the first row, and several of them (Qwen's templates, MiniMax)
            r"|system (message|role|prompt)s? .{0,20}\b(after|between)\b"
            r"|system (message|role|prompt)s? (must|should|can only|may only|(is|are) only)"
            r"|(multiple|more than one|several|only one) system (message|role|prompt)"
            # the first row or the last one: Qwen, DeepSeek, llama.cpp, Anthropic and Bedrock, Snowflake, GLM
            r"|no user query found|(first|last) message (role )?(must|should|in a)|role in the final position"
            r"|messages\[0\]\.role.{0,3} (must|should)"
            r"|(conversation|history) must (start|begin|end) with|(assistant|response) (message |response )?prefill"
            r"|(2|two) or more assistant messages at the end|function call turn comes immediately after|角色信息不正确",
            re.IGNORECASE,
        ),
        {"alternating_roles": True},
        "the server requires that roles alternate; from now on rows of one role are joined",
    ),
    RoleRefusal(
        # the last words also come from templates that count instructions as a row, if the roles alternate already
        lazy_compile(
            r"role.{0,3} does not support .?system|\bnot support (the )?(system|developer) "
            r"(message|prompt|instruction|role)"
            r"|(system|developer) (message|prompt|instruction)s? (is |are )?not (supported|allowed|enabled|accepted)"
            r"(?! (after|in|at|between))"
            rf"|{refuses_role('system')}|conversation roles must alternate",
            re.IGNORECASE,
        ),
        {"system_rows": False},
        "the server takes no system row; from now on instructions are in the user's first one",
    ),
)
