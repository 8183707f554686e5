"""Texts of events, sessions and files reach a terminal with control characters escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from agenticx.runtime import EventType, envelope_schema

HOSTILE = "a\x1b]0;PWNED\x07b\x9b2Jc\u202ed\u2028e\u2029f\x08\rg\x7fh"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
WRONG_VALUES = (HOSTILE, 10**400, None, [HOSTILE], {HOSTILE: HOSTILE})


def envelopes() -> Iterator[dict[str, Any]]:
    """Yield a valid envelope of each type, and copies in which one field has a value of another type."""
    definitions = envelope_schema()["$defs"]
    mapping = envelope_schema()["discriminator"]["mapping"]
    for type_ in EventType:
        envelope = sample(definitions[mapping[type_].rpartition("/")[2]], definitions)
        envelope["type"] = type_
        yield envelope
        for path in paths(envelope, ()):
            for value in WRONG_VALUES:
                yield replaced(envelope, path, value)


def sample(schema: dict[str, Any], definitions: dict[str, Any]) -> Any:
    """Return a value of the schema with all optional keys, in which every text is hostile."""
    if "$ref" in schema:
        return sample(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return sample(schema["anyOf"][0], definitions)
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    match schema.get("type"):
        case "object" if "properties" in schema:
            return {name: sample(inner, definitions) for name, inner in schema["properties"].items()}
        case "array":
            return [sample(schema["items"], definitions)]
        case "integer" | "number":
            return 3
        case "boolean":
            return True
        case "string":
            return HOSTILE
        case _:
            return {HOSTILE: HOSTILE}


def paths(value: Any, before: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield (*before, name)
        yield from paths(inner, (*before, name))


def replaced(envelope: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    copy = json.loads(json.dumps(envelope))
    inner = copy
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return copy


def controls(raw: str) -> set[str]:
    """Return the control characters in a terminal's raw output, apart from line breaks and our own colours."""
    text = COLOURS.sub("", raw.replace("\r\n", "\n"))
    return {char for char in text if char in HOSTILE and not char.isprintable()}


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["as text", "as json"])
@pytest.mark.cases(quick=1)
def test_every_field_of_every_event_is_escaped_for_a_terminal(
    agx: Any, terminal: Callable[..., Any], tmp_path: Path, options: list[str]
) -> None:
    lines = [json.dumps(envelope, ensure_ascii=False) for envelope in envelopes()]
    assert len(lines) > 31 * 7 * len(WRONG_VALUES)
    file = tmp_path / "hostile.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    screen = terminal("sessions", "replay", str(file), *options)
    assert screen.exit_code() == 0
    assert controls(screen.raw) == set()
    assert "Traceback" not in screen.raw
    assert "PWNED" in screen.raw


@pytest.mark.parametrize("form", ["markdown", "jsonl"])
@pytest.mark.cases(quick=1)
def test_an_export_to_a_terminal_escapes_what_an_exported_file_keeps(
    agx: Any, terminal: Callable[..., Any], form: Literal["markdown", "jsonl"]
) -> None:
    agx("run", f"say {HOSTILE}")
    screen = terminal("sessions", "export", "last", "--format", form)
    assert screen.exit_code() == 0
    assert controls(screen.raw) == set()
    assert "PWNED" in screen.raw
    kept = agx("sessions", "export", "last", "--format", form).stdout
    assert (HOSTILE.replace("\r", "\n") in kept) is (form == "markdown")  # as text, which takes \r for a line's end


def test_a_name_in_an_exported_file_is_a_heading_without_control_characters(agx: Any) -> None:
    agx("run", f"say {HOSTILE}")
    heading = agx("sessions", "export", "last", "--format", "markdown").stdout.partition("\n")[0]
    assert heading == ("# say a⟨U+001B⟩\\]0;PWNED⟨U+0007⟩b⟨U+009B⟩2Jc⟨U+202E⟩d")
