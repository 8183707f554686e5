"""The `agx run` command: one turn in the terminal, in a new or a stored session."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace

from agenticx.cli.client.base import TurnOptions
from agenticx.cli.commands.message_input import add_attach_option, add_image_option, load_attachments, read_task
from agenticx.cli.exit_codes import USAGE
from agenticx.cli.options import ANSWERS, add_turn_options
from agenticx.cli.terminal.event_text import Note
from agenticx.cli.terminal.opening import open_conversation
from agenticx.cli.terminal.output import output_for
from agenticx.errors import AttachmentRefused, SettingsError
from agenticx.llms.providers.addresses import with_address
from agenticx.llms.providers.resolve import served_model_name
from agenticx.messages import UserMessage
from agenticx.runtime.options import MAX_OPTIONS, MIN_OPTIONS, check_variants
from agenticx.tools.visible import visible_line

__all__ = ["configure", "run"]

_EPILOG = f"""\
The session is stored: -c continues the last one, --session any, `agx sessions` shows it. If a server (agx serve) owns
the sessions, it runs the turn, in the folder of this terminal, and the page shows it too; else this process does, or an
agx in another terminal that has the sessions. The answer goes to stdout; tool calls, questions and all else go to
stderr. Risky calls are confirmed at the terminal; without one they are denied unless --yes, and the model is told that
nobody could be asked. A session in mode auto is continued in mode default then. Ctrl-C stops the turn; a second one
exits at once. While another terminal or the page runs a turn in the session, the task waits for its end, and Ctrl-C
takes it back; it is not run if that turn is stopped, nor can it wait with --variants. Sub-agents that are still at work
when the turn has ended go on at a server, else the command stops them.
The model gets the AGENTS.md of the folder, and of the folders above it in its repository; stderr names them.
With --variants the answer is a list of options, whose files `agx artifacts … --option N` has; the next message goes on
with the first complete one, unless /pick N in `agx chat -c`, or the page, picks another.

{ANSWERS}

examples:
  agx run "Which files are here?"
  agx run List the files                     quotes are only for what the shell would change
  agx run -c "And which of them is the largest?"
  agx run "Write notes.txt with the text hello" --yes --cwd /tmp/demo
  git diff | agx run "Write a commit message" -m openai-chat:gpt-4.1-mini
  agx run "What is wrong on this screenshot?" --attach screen.png
  agx run --agent page-builder "Build a page about a bakery"
  agx run --agent page-builder --image screen.png "Rebuild this page"
  agx run --agent page-builder --variants 3 "Build a page about a bakery"
  agx run "Summarise README.md" --json | jq -r 'select(.type == "final") | .data.text'

exit codes: 0 final, 1 fatal error, 2 usage, 130 stopped"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx run` to its parser."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "prompt",
        nargs="+",
        metavar="TASK",
        help="the task, also as several words, to which piped input is added; - reads all of it from stdin",
    )
    add_turn_options(parser, with_agent=True)
    add_attach_option(parser)
    add_image_option(parser)
    parser.add_argument(
        "--variants",
        metavar="N|A,B",
        type=_variants,
        help=f"make {MIN_OPTIONS} to {MAX_OPTIONS} answers to choose from at once: so many, or one with each of these"
        " models",
    )
    parser.add_argument("--json", action="store_true", help="print the turn's events as stored, one envelope per line")


def run(arguments: Namespace) -> int:
    """Run `agx run` and return its exit code."""
    prompt = read_task(" ".join(arguments.prompt))
    try:
        message = UserMessage(content=prompt, attachments=load_attachments(arguments.attach, arguments.image))
    except AttachmentRefused as exc:
        print(f"agx run: {visible_line(str(exc), 2_000)}", file=sys.stderr)
        return USAGE
    with open_conversation(arguments, output_for(as_json=arguments.json)) as conversation:
        variants: int | tuple[str, ...] | None = arguments.variants
        if isinstance(variants, tuple) and arguments.base_url is not None:
            variants = tuple(with_address(served_model_name(name), arguments.base_url) for name in variants)
        for name in variants if isinstance(variants, tuple) else ():
            conversation.run(conversation.client.resolve_model(name))  # an unknown one is refused before any begins
        if conversation.session is not None and conversation.turn_mode == "auto":
            conversation.output.show_note(
                Note("this session is in mode auto: calls run without being asked about", "warning")
            )
        return conversation.run_single_turn(message, TurnOptions(variants=variants), command="agx run")


def _variants(text: str) -> int | tuple[str, ...]:
    """Return the number or the names of models that --variants gives."""
    word, names = text.strip(), tuple(name.strip() for name in text.split(","))
    variants = int(word) if word.isascii() and word.isdigit() and len(word) < 10 else names
    try:
        check_variants(variants)
    except SettingsError:
        variants = ()
    if not variants or "" in names:
        raise ArgumentTypeError(
            f"{visible_line(text, 100)!r} is neither a number from {MIN_OPTIONS} to {MAX_OPTIONS} nor the names of as"
            " many models, with commas between them, as in 'demo,ollama:qwen3'"
        )
    return variants
