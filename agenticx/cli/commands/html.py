"""The `agx html` command: the page in the text of a model's reply."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from agenticx.cli.exit_codes import DONE
from agenticx.errors import AgenticXError
from agenticx.tools.artifacts.extraction import Extracted, extract_html
from agenticx.tools.text_files import BYTE_ORDER_MARK, decode_text
from agenticx.tools.visible import escape_controls, visible_path

__all__ = ["configure", "run"]

_MAX_BYTES = 64 * 1024 * 1024

_EPILOG = """\
What is found, in this order:
  a file         <file path="index.html">…</file>, else the first .html file
  a document     from a line that begins with <!doctype html or <html, outside fences of other languages, up to </html>
                 at the end of a line; of several the last that is complete, else what is there of the last one
  a fragment     the longest fence with the language html
The page is printed as it stands in the text, with nothing added. A text without one is no error: nothing is printed,
and standard error says so; with --json it is `null`. A page that `agx run` makes with create_file is no part of its
reply: `agx artifacts show last` prints it.

examples:
  agx html extract reply.md > index.html
  agx html extract < reply.md > index.html
  agx html extract reply.md --json           {"html": …, "complete": …, "path": …} or null; complete is false if the end
                                             was not seen, path is that of the file, else null

exit codes: 0 done, 1 a file that cannot be read or is no text, 2 usage"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx html` to its parser."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "the page in a reply"
    extracting = actions.add_parser("extract", help=text, description=f"{text.capitalize()}.", epilog=_EPILOG)
    extracting.formatter_class = parser.formatter_class
    extracting.add_argument(
        "file", metavar="FILE", nargs="?", default="-", help="the text (default, and -: standard input)"
    )
    extracting.add_argument("--json", action="store_true", help="one object: html, complete, path; or null")


def run(arguments: Namespace) -> int:
    """Run `agx html` and return its exit code."""
    found = extract_html(_read_text(arguments.file))
    if arguments.json:
        print(json.dumps(None if found is None else asdict(found)))
    elif found is None:
        print(
            "agx html: no page was found; `agx artifacts` has the files that a model writes with create_file",
            file=sys.stderr,
        )
    else:
        _print_html(found)
    return DONE


def _read_text(path: str) -> str:
    """Return the text of a file or of standard input; raise AgenticXError if it is no text."""
    name = "standard input" if path == "-" else visible_path(path)
    if path == "-":
        content = sys.stdin.buffer.read(_MAX_BYTES + 1)
    else:
        with open(path, "rb") as file:
            content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise AgenticXError(f"{name} has more than {_MAX_BYTES // 1024**2} MiB, which is no reply of a model")
    decoded = decode_text(content)
    if decoded is None:
        raise AgenticXError(f"{name} is no text in UTF-8 or UTF-16; give the text of a reply")
    return decoded.text.removeprefix(BYTE_ORDER_MARK)


def _print_html(found: Extracted) -> None:
    """Print the HTML, for a terminal with its control characters escaped and a line break at the end."""
    if sys.stdout.isatty():
        print(escape_controls(found.html.replace("\r\n", "\n")))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(found.html.encode())
    sys.stdout.buffer.flush()
