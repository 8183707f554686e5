"""`agx run`: one turn in the terminal."""

from __future__ import annotations

import asyncio
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path

from agenticx.attachments import check_attachments, load_attachment
from agenticx.cli.conversation import add_arguments, open_conversation
from agenticx.cli.exit_codes import USAGE
from agenticx.cli.render import output_for
from agenticx.errors import AttachmentRefused
from agenticx.messages import UserMessage, clean_text

__all__ = ["configure", "run"]

_EPILOG = """\
The turn runs in this process and its session ends with it. The answer goes to stdout; tool calls, questions and
everything else go to stderr. Risky calls are asked about at the terminal; without one they are denied unless --yes.
Ctrl-C stops the turn; a second one leaves at once.

examples:
  agx run "Which files are here?"
  agx run "Write notes.txt with the text hello" --yes --cwd /tmp/demo
  git diff | agx run - --model openai-chat:gpt-4.1-mini
  agx run "What is wrong on this screenshot?" --attach screen.png
  agx run "Summarise README.md" --json | jq -r 'select(.type == "final") | .data.text'

exit codes: 0 final, 1 fatal error, 2 usage, 130 stopped"""


def configure(parser: ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("prompt", help="what to do; - reads it from stdin")
    add_arguments(parser)
    parser.add_argument(
        "--attach",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="an image, PDF or text file that goes along; may be given again",
    )
    parser.add_argument("--json", action="store_true", help="print the turn's events, one envelope per line")
    parser.add_argument("--session", metavar="ID", help=SUPPRESS)


def run(arguments: Namespace) -> int:
    if arguments.session is not None:
        return _usage("--session: this release keeps sessions only while their process runs, so none can be continued")
    prompt: str = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    if not prompt.strip():
        return _usage("the prompt is empty; say what to do, or pipe it in with -")
    try:
        message = UserMessage(content=clean_text(prompt), attachments=tuple(map(load_attachment, arguments.attach)))
        check_attachments(message.attachments)
    except AttachmentRefused as exc:
        return _usage(f"--attach: {exc}")
    conversation, note = open_conversation(arguments)
    output = output_for(conversation.session.id, as_json=arguments.json)
    if note is not None:
        output.note(note)
    with asyncio.Runner() as runner:
        return conversation.turn(runner, message, output)


def _usage(sentence: str) -> int:
    print(f"agx run: {sentence}", file=sys.stderr)
    return USAGE
