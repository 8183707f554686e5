"""The `agx ask` command: a question about the person's notes, answered with checked citations."""

from __future__ import annotations

import asyncio
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import Any

from agenticx.cli.client.base import TurnOptions
from agenticx.cli.client.envelopes import Envelope
from agenticx.cli.commands.message_input import read_task
from agenticx.cli.commands.vault import ask_about_embeddings
from agenticx.cli.options import add_turn_options
from agenticx.cli.terminal.event_text import Note, citation_line, citation_note
from agenticx.cli.terminal.opening import open_conversation
from agenticx.cli.terminal.output import Output, OutputWrapper, output_for
from agenticx.errors import SettingsError
from agenticx.knowledge import UnknownVault, VaultRecord, Vaults
from agenticx.knowledge.registry import VaultRegistry
from agenticx.messages import UserMessage
from agenticx.runtime.events import EventType
from agenticx.settings import load_settings
from agenticx.tools.visible import visible_path

__all__ = ["configure", "run"]

_MARKER = re.compile(r"\[\^(\d{1,9})\](?!:)")
_CODE_OR_QUOTATION = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|^[ \t]{0,12}>[^\n]*|\"[^\"\n]{1,2000}\"|[“„][^“”„\n]{1,2000}[”“]",
    re.DOTALL | re.MULTILINE,
)
"""Text whose markers may come from a quoted note."""
_MAX_SHOWN = 20

_EPILOG = """\
The answer is made from your notes: a first search, then the model reads on by itself. Each [^n] in it names a passage,
which is compared with its note; the list after the answer has the result, the note and the line:

  verified     every number, date, quotation and code of the sentence stands in the passage
  located      the passage is there; the sentence has nothing that can be compared
  unsupported  the passage lacks one of them
  changed      the passage is no longer in the note, or the note cannot be read

This compares words and figures. Whether the sentence says what the passage means is for you to read.

After 5 model calls (AGX_AUTONOMOUS_AGENT_MAX_ITERATIONS) or 300 s the answer is what was found so far.

examples:
  agx vault add ~/Notes
  agx ask "When does the lease end?"
  agx ask -c "And what does it cost?"
  agx ask "What did I decide about the car?" --vault Notes --json

exit codes: 0 answered, 1 fatal error, 2 usage or no vault, 130 stopped"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx ask` to its parser."""
    parser.epilog = _EPILOG
    parser.add_argument("question", help="the question, to which piped input is added; - reads all of it from stdin")
    parser.add_argument(
        "--vault", metavar="V", action="append", help="a vault by name or id (default: all; repeatable)"
    )
    add_turn_options(parser)
    parser.add_argument("--json", action="store_true", help="print the turn's events as stored, one envelope per line")


def run(arguments: Namespace) -> int:
    """Run `agx ask` and return its exit code."""
    vaults = _vaults(arguments.vault)
    message = UserMessage(content=read_task(arguments.question))
    _warn_of_missing_folders(vaults)
    settings = load_settings()
    if settings.embedding_model is not None:
        asyncio.run(_ask_about_embeddings(vaults))
    output: Output = output_for(as_json=arguments.json)
    if settings.enable_inline_citations and not arguments.json:
        output = _WithCitations(output)
    with open_conversation(arguments, output) as conversation:
        ids = None if vaults is None else tuple(vault.id for vault in vaults)
        return conversation.run_turn(message, TurnOptions(mode="vault", vaults=ids))


def _vaults(names: list[str] | None) -> list[VaultRecord] | None:
    """Return the vaults of these names, None for all; raise `SettingsError` if there is none."""
    registry = VaultRegistry(load_settings().home)
    if not registry.list():
        raise SettingsError("there is no vault of notes; add one with `agx vault add PATH`")
    try:
        return None if names is None else [registry.find(name) for name in names]
    except UnknownVault as exc:
        raise SettingsError(f"--vault: {exc}") from exc


def _warn_of_missing_folders(vaults: list[VaultRecord] | None) -> None:
    for vault in VaultRegistry(load_settings().home).list() if vaults is None else vaults:
        if not vault.path.is_dir():
            folder = visible_path(str(vault.path))
            print(f"agx ask: the folder {folder!r} of the vault {vault.name!r} is missing", file=sys.stderr)


async def _ask_about_embeddings(records: list[VaultRecord] | None) -> None:
    settings = load_settings()
    vaults = Vaults(settings.home, embedding_model=settings.embedding_model)
    try:
        for vault in await vaults.list():
            if records is None or vault.record in records:
                await ask_about_embeddings(vaults, vault)
    finally:
        await vaults.close()


class _WithCitations(OutputWrapper):
    """An output that lists the citations after the answer: on stdout, or in colour if that is a terminal."""

    def __init__(self, output: Output) -> None:
        super().__init__(output)
        self._citations: list[Mapping[str, Any]] = []
        self._turn_id: str | None = None

    def show(self, event: Envelope) -> None:
        if event.begins_root_turn:
            self._turn_id = event.turn_id
        is_own = event.turn_id == self._turn_id  # not a sub-agent's
        if event.type == EventType.CITATION:
            if is_own:
                self._citations.append(event.data)
            return
        super().show(event)
        if event.terminal and is_own:
            self._list_citations(event.data["text"] if event.type == EventType.FINAL else "")

    def _list_citations(self, answer: str) -> None:
        citations, self._citations = self._citations, []
        names_vault = len({citation.get("vault") for citation in citations}) > 1
        if not citations:
            if answer:
                self._output.show_note(Note("no sentence of the answer is cited from a note", "warning"))
        elif sys.stdout.isatty():
            self._output.show_note(Note("citations in the order of the answer, compared with the notes:"))
            for citation in citations:
                self._output.show_note(citation_note(citation, names_vault=names_vault))
        else:
            lines = [citation_line(citation, names_vault=names_vault) for citation in citations]
            print("", *lines, sep="\n", flush=True)
        known = {citation["marker"] for citation in citations}
        if unknown := sorted({int(number) for number in _MARKER.findall(_CODE_OR_QUOTATION.sub("", answer))} - known):
            names = ", ".join(f"[^{number}]" for number in unknown[:_MAX_SHOWN])
            self._output.show_note(Note(f"without a passage of a note: {names}", "warning"))
