"""What one reply may be at most, whatever wire it comes over; `base.ReplySize` counts it there and behind all wires.

Memory is in bytes, what is written in characters. Real replies stay far below each of them; all of them together keep
a process within 64 MB of what it took before.
"""

from __future__ import annotations

__all__ = [
    "MAX_ARGUMENT_CHARS",
    "MAX_CALLS",
    "MAX_DELTAS",
    "MAX_ITEMS",
    "MAX_KEPT_BYTES",
    "MAX_NAME_CHARS",
    "MAX_PARSED_BYTES",
    "MAX_REPLY_BYTES",
    "MAX_VALUES",
    "MAX_WIRE_BYTES",
]

MAX_CALLS = 256
"""Calls of tools; real models ask for a few dozen at most."""

MAX_NAME_CHARS = 1024
"""The name of one tool; providers take 64 to 128. Ids are only counted: gateways put signatures into them."""

MAX_ARGUMENT_CHARS = 4 * 1024 * 1024
"""The arguments of one call, as text."""

MAX_VALUES = 10_000
"""JSON values in the arguments of one call. A longest reply has room for as many; what reads them takes about a
microsecond for each, and does so several times."""

MAX_ITEMS = 4096
"""Output items or content blocks."""

MAX_REPLY_BYTES = 12 * 1024 * 1024
"""All that is written, with the ids and names of calls: 12 million characters, three million where any is not ASCII."""

MAX_DELTAS = 400_000
"""Pieces in which it comes. No model writes as many tokens; a letter that comes alone takes up to 90 bytes."""

MAX_WIRE_BYTES = 64 * 1024 * 1024
"""Its events as they come, whatever is in them; a token takes up to 350 bytes there, and no model writes 190,000."""

MAX_KEPT_BYTES = 24 * 1024 * 1024
"""Parsed JSON that a wire keeps until the end of the reply, for the provider or to compare with."""

MAX_PARSED_BYTES = 24 * 1024 * 1024
"""What one piece of JSON may come to, an event or the arguments of all calls; parsed, `{}` takes 25 times as much as
its text, and an emoji makes all letters of its string four bytes wide."""
