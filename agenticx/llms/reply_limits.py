"""Limits on the size of one reply, for all wires; `base.ReplySize` enforces them.

Memory is in bytes, text in characters. Real replies are far smaller than each limit; together they bound the memory
that a reply adds to a process to 64 MB.
"""

from __future__ import annotations

__all__ = [
    "MAX_ARGUMENT_CHARS",
    "MAX_CALLS",
    "MAX_DELTAS",
    "MAX_DEPTH",
    "MAX_DIGITS",
    "MAX_ITEMS",
    "MAX_KEPT_BYTES",
    "MAX_NAME_CHARS",
    "MAX_PARSED_BYTES",
    "MAX_REPLY_BYTES",
    "MAX_VALUES",
    "MAX_WIRE_BYTES",
]

MAX_CALLS = 256
"""Tool calls; real models make a few dozen at most."""

MAX_NAME_CHARS = 1024
"""The name of one tool; providers accept 64 to 128. Ids count only towards the total: gateways put signatures there."""

MAX_ARGUMENT_CHARS = 4 * 1024 * 1024
"""The arguments of one call, as text."""

MAX_VALUES = 10_000
"""JSON values in the arguments of one call. The longest reply can contain as many; reading them takes about a
microsecond for each, and they are read several times."""

MAX_DEPTH = 100
"""Levels of objects and lists in the arguments of one call: far more than any schema has, and far fewer than recursion
over the value can take."""

MAX_DIGITS = 1_300
"""Digits of a whole number in the arguments of one call: as many as 4,096 bits, a usual length of keys, have. Parsing
and printing takes quadratic time in them."""

MAX_ITEMS = 4096
"""Output items or content blocks."""

MAX_REPLY_BYTES = 12 * 1024 * 1024
"""All text, with the ids and names of calls: 12 million characters, three million if any is not ASCII."""

MAX_DELTAS = 400_000
"""Deltas of a reply. No model writes as many tokens; a delta of a single letter takes up to 90 bytes of memory."""

MAX_WIRE_BYTES = 64 * 1024 * 1024
"""Bytes of all events as received; a token takes up to 350 bytes there, and no model writes 190,000 tokens."""

MAX_KEPT_BYTES = 24 * 1024 * 1024
"""Parsed JSON that a wire keeps until the end of the reply, for the provider or to compare with."""

MAX_PARSED_BYTES = 24 * 1024 * 1024
"""Memory of one parsed JSON text: an event, or the arguments of all calls. Parsed, `{}` takes 25 times as much as its
text, and an emoji makes all letters of its string four bytes wide."""
