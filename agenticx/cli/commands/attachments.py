"""Attachments given on the command line, and those collected for the next message of a chat."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from agenticx.attachments import Attachment, check_attachments, load_attachment
from agenticx.tools.amounts import pluralize

__all__ = ["PendingAttachments", "add_attach_option", "load_attachments"]


def add_attach_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--attach",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="an image, PDF or text file to send; may be repeated",
    )


def load_attachments(paths: Sequence[Path]) -> tuple[Attachment, ...]:
    """Load the attachments of one message; raise `AttachmentRefused` for a file or a total that is not allowed."""
    attachments = tuple(map(load_attachment, paths))
    check_attachments(attachments)
    return attachments


class PendingAttachments:
    """The attachments of the next message of a chat."""

    def __init__(self) -> None:
        self._files: tuple[Attachment, ...] = ()

    def add(self, text: str) -> None:
        """Add the files that the user typed: one path, or several with shell quoting.

        Raise `AttachmentRefused` for a file that is not allowed; none is added then.
        """
        files = (*self._files, *map(load_attachment, _parse_paths(text)))
        check_attachments(files)
        self._files = files

    def take(self) -> tuple[Attachment, ...]:
        """Return the attachments and clear the list."""
        files, self._files = self._files, ()
        return files

    def describe(self) -> str:
        """Return a line for the user that lists the attachments."""
        if not self._files:
            return "no file is attached; /attach FILE attaches one to your next message"
        names = ", ".join(f"{file.name} ({file.media_type}, {pluralize(file.size, 'byte')})" for file in self._files)
        return f"attached to your next message: {names}"


def _parse_paths(text: str) -> list[Path]:
    """Return the text as one path, spaces included, if that file exists, else its words by shell quoting.

    Terminals quote the paths of files that are dropped on them.
    """
    whole = Path(text).expanduser()
    if whole.is_file():
        return [whole]
    try:
        words = shlex.split(text)
    except ValueError:  # an unbalanced quote
        return [whole]
    return [Path(word).expanduser() for word in words]
