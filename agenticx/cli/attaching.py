"""Files that a person sends along: the option that names them, and those that wait for the next message of a chat."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from agenticx.attachments import Attachment, check_attachments, load_attachment
from agenticx.tools.amounts import counted

__all__ = ["PendingAttachments", "add_attach_option", "load_attachments"]


def add_attach_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--attach",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="an image, PDF or text file that goes along; may be given again",
    )


def load_attachments(paths: Sequence[Path]) -> tuple[Attachment, ...]:
    """The files, which one message may have together; raises `AttachmentRefused`."""
    attachments = tuple(map(load_attachment, paths))
    check_attachments(attachments)
    return attachments


class PendingAttachments:
    """Files for the next message. A refused one leaves those that wait as they are."""

    def __init__(self) -> None:
        self._files: tuple[Attachment, ...] = ()

    def add(self, text: str) -> None:
        """Take in what a person named: one path, or several in a shell's quotes. Raises `AttachmentRefused`."""
        files = (*self._files, *map(load_attachment, _parse_paths(text)))
        check_attachments(files)
        self._files = files

    def take(self) -> tuple[Attachment, ...]:
        """The files, which do not wait any more."""
        files, self._files = self._files, ()
        return files

    def describe(self) -> str:
        if not self._files:
            return "no file is attached; /attach FILE attaches one to your next message"
        names = ", ".join(f"{file.name} ({file.media_type}, {counted(file.size, 'byte')})" for file in self._files)
        return f"attached to your next message: {names}"


def _parse_paths(text: str) -> list[Path]:
    """A path as typed, spaces included, if there is such a file; otherwise the words, as a dropped file is quoted."""
    whole = Path(text).expanduser()
    if whole.is_file():
        return [whole]
    try:
        words = shlex.split(text)
    except ValueError:  # a lone quote
        return [whole]
    return [Path(word).expanduser() for word in words]
