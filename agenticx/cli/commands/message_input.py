"""The input of a message: a prompt from the command line or stdin, and its attachments."""

from __future__ import annotations

import os
import re
import select
import shlex
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agenticx.attachments import Attachment, check_attachments, load_attachment
from agenticx.errors import AttachmentRefused, SettingsError, ToolError
from agenticx.messages import clean_text
from agenticx.tools.paths import WorkspacePath, resolve_as_shown
from agenticx.tools.plurals import pluralize
from agenticx.tools.secret_files import SecretFiles, is_private
from agenticx.untrusted_text import MATERIAL, frame_text

__all__ = [
    "MAX_PROMPT_CHARS",
    "MentionReport",
    "PendingAttachments",
    "add_attach_option",
    "add_image_option",
    "describe_attachment",
    "load_attachments",
    "read_prompt",
    "read_task",
    "validate_prompt",
]


def add_attach_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--attach",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="an image (5 MiB), PDF (12 MiB) or text file (512 KiB) to send; may be repeated; a model that cannot read"
        " it gets its name, and a note that its content is not available",
    )


def add_image_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--image",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="the same for a file that must be an image, such as the screenshot of a page",
    )


def load_attachments(paths: Sequence[Path], images: Sequence[Path] = ()) -> tuple[Attachment, ...]:
    """Load the attachments of one message, the `images` first.

    Raise `AttachmentRefused`, whose message begins with the option, for a file or a total that is not allowed.
    """
    attachments = (*(_load_image(path) for path in images), *(_load_for("--attach", path) for path in paths))
    try:
        check_attachments(attachments)
    except AttachmentRefused as exc:
        raise AttachmentRefused(f"{'--attach' if paths else '--image'}: {exc}") from exc
    return attachments


def _load_image(path: Path) -> Attachment:
    """Return the image at `path`; raise `AttachmentRefused` for any other file."""
    image = _load_for("--image", path)
    if image.kind != "image":
        raise AttachmentRefused(f"--image: {image.name!r} is {image.media_type}; right would be {_IMAGES}")
    return image


def _load_for(option: str, path: Path) -> Attachment:
    try:
        return _load(path)
    except AttachmentRefused as exc:
        raise AttachmentRefused(f"{option}: {exc}") from exc


_IMAGES = "an image: a PNG, JPEG, GIF or WebP file"


def _load(path: Path) -> Attachment:
    return load_attachment(_find(path))


def _find(path: Path) -> Path:
    """Return the path, or that of the one existing file whose name is shown like it; raise `AttachmentRefused`."""
    if os.path.exists(path):  # unlike `Path.exists`, also for a name that is too long
        return path
    try:
        found = resolve_as_shown(os.path.abspath(path), Path("/"), lambda _: False).path
    except ToolError as exc:
        raise AttachmentRefused(str(exc)) from exc
    return found if os.path.exists(found) else path


@dataclass(frozen=True, slots=True)
class MentionReport:
    """The files that a message added as `@PATH`, and the words behind an @ that name no file and stay text."""

    files: tuple[Attachment, ...]
    words: tuple[str, ...]


class PendingAttachments:
    """The attachments of the next message of a chat."""

    def __init__(self) -> None:
        self.files: tuple[Attachment, ...] = ()

    def add(self, text: str) -> None:
        """Add the files that the user typed: one path, or several with shell quoting.

        Raise `AttachmentRefused` for a file that is not allowed; none is added then.
        """
        files = (*self.files, *map(_load, _parse_paths(text)))
        check_attachments(files)
        self.files = files

    def add_mentioned(
        self, text: str, folder: Path, private: Sequence[Path], allows_secret: Callable[[str], bool]
    ) -> MentionReport:
        """Add the files of `folder` that the user mentioned in a message as `@PATH` or `@"PATH"`, each once.

        `allows_secret` is called with the path of each file that usually holds keys or passwords, or that lies in a
        `private` folder. Raise `AttachmentRefused` if that returns False, for a path of no file, for one outside of
        the folder and for a file that cannot be attached; none is added then.
        """
        added: dict[Path, Attachment] = {}
        words: list[str] = []
        for word in dict.fromkeys(quoted or plain for quoted, plain in _MENTION.findall(text)):
            target = _find_mentioned(word, folder)
            if target is None:
                words.append(word)
            elif target.path not in added:
                is_secret = SecretFiles(target.root).hold(target) or is_private(target, private)
                if is_secret and not allows_secret(target.shown):
                    raise AttachmentRefused(f"{target.shown} is not attached")
                added[target.path] = _load(target.path)
        files = tuple(file for file in added.values() if file not in self.files)
        check_attachments((*self.files, *files))
        self.files = (*self.files, *files)
        return MentionReport(files, tuple(words))

    def take(self) -> tuple[Attachment, ...]:
        """Return the attachments and clear the list."""
        files, self.files = self.files, ()
        return files

    def describe(self) -> str:
        """Return a line for the user that lists the attachments."""
        if not self.files:
            return "no file is attached; /attach FILE attaches one to your next message"
        return f"attached to your next message: {', '.join(map(describe_attachment, self.files))}"


def describe_attachment(file: Attachment) -> str:
    """Return the name, media type and size of a file, for the user."""
    return f"{file.name} ({file.media_type}, {pluralize(file.size, 'byte')})"


def _find_mentioned(word: str, folder: Path) -> WorkspacePath | None:
    """Return the file that a mention names, None for a folder or a word that is no path; raise `AttachmentRefused`."""
    text = os.path.expanduser(word)
    path = folder / text
    if path.is_dir():
        return None
    try:
        target = resolve_as_shown(text, folder, lambda _: False)
    except ToolError as exc:
        if not os.path.lexists(path) and not _is_path(word, folder):
            return None
        raise AttachmentRefused(f"@{word}: {exc}; /attach FILE takes any file") from exc
    if os.path.lexists(target.path):
        return target
    if _is_path(word, folder):
        raise AttachmentRefused(f"@{word}: there is no such file in {str(folder)!r}; without the @ it is text")
    return None


def _is_path(word: str, folder: Path) -> bool:
    """Return whether a word that names no file was meant as a path, unlike `@ann` or `@types/node`."""
    if _PATH.fullmatch(word) is None:
        return False
    first, slash, _ = word.partition("/")
    return _EXTENSION.search(word) is not None or (
        slash != "" and (first in ("", ".", "..", "~") or (folder / first).is_dir())
    )


def _parse_paths(text: str) -> list[Path]:
    """Return the text as one path, spaces included, if that file exists, else its words by shell quoting.

    Terminals quote the paths of files that are dropped on them.
    """
    path = Path(text).expanduser()
    if os.path.isfile(_find(path)):
        return [path]
    try:
        words = shlex.split(text)
    except ValueError:  # an unbalanced quote
        return [path]
    return [Path(word).expanduser() for word in words]


_PATH = re.compile(r"[\w./~+-]+")
_EXTENSION = re.compile(r"\w\.[A-Za-z0-9]{1,4}$")  # longer ones are attributes, as in `@app.route`
_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S*[^\s.,;:!?)]))')
_PIPE_SECONDS = 3.0

MAX_PROMPT_CHARS = 4_000_000
"""The most characters of one message, the same as the server's limit."""


def read_prompt(argument: str) -> str:
    """Return the prompt, read from stdin if `argument` is `-`; raise `SettingsError` if it is empty or too long."""
    prompt = sys.stdin.read(MAX_PROMPT_CHARS + 1) if argument == "-" else argument
    if not prompt.strip():
        raise SettingsError("the prompt is empty; pass it as an argument, or - to read it from stdin")
    return validate_prompt(prompt)


def read_task(argument: str) -> str:
    """Return the prompt of `agx run`: the argument followed by piped input in a frame; for `-`, standard input alone.

    A pipe that brings nothing within `_PIPE_SECONDS` is left alone, with a notice on standard error: many programs
    start others with an open pipe that they never write to.
    """
    prompt = read_prompt(argument)
    if argument == "-" or sys.stdin.isatty():
        return prompt
    if not _has_input(_PIPE_SECONDS):
        notice = f"standard input brought nothing for {_PIPE_SECONDS:g} s and is left alone; - waits for it"
        print(f"agx: {notice}", file=sys.stderr)
        return prompt
    piped = sys.stdin.read(MAX_PROMPT_CHARS + 1)
    return validate_prompt(f"{prompt}\n\n{frame_text('standard input', piped, MATERIAL)}") if piped.strip() else prompt


def _has_input(seconds: float) -> bool:
    """Return whether standard input has content or ends within that time."""
    try:
        return bool(select.select([sys.stdin], [], [], seconds)[0])
    except (OSError, ValueError):  # Windows: a pipe cannot be polled there, and is read
        return True


def validate_prompt(text: str) -> str:
    """Return the text as a message stores it; raise `SettingsError` if it is too long."""
    if len(text) > MAX_PROMPT_CHARS:
        raise SettingsError(f"a message has at most {MAX_PROMPT_CHARS:,} characters; put longer text into a file")
    return clean_text(text)
