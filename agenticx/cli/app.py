"""The `agx` program: command lookup, argument parsing, and the exit code of every outcome."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from agenticx import __version__
from agenticx.cli.exit_codes import DONE, FAILED, OUT_OF_MEMORY_EXIT_CODE, STOPPED, USAGE
from agenticx.cli.interrupt_handling import raise_on_ctrl_c
from agenticx.cli.registry import BUILTIN_COMMANDS, commands_from_entry_points, find_command, parser_of
from agenticx.errors import AgenticXError, SettingsError, error_text
from agenticx.similar_names import similar_names

__all__ = ["main"]

_EXAMPLES = """\
examples:
  agx run "List the files here"              one turn; without a provider key, the offline demo answers
  git diff | agx run "Review this change"    what is piped in comes after the task
  agx run -c "And the largest?"              continue the session that was used last
  agx chat                                   a conversation; Ctrl-C stops a turn, Ctrl-D quits
  agx serve --open                           the studio in your browser
  agx doctor                                 check settings, keys, models and the store

exit codes: 0 final, 1 fatal error, 2 usage, 130 stopped"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raise, not even SystemExit."""
    if argv is not None:
        return _run_without_raising(list(argv))
    try:
        return _run_without_raising(sys.argv[1:])
    finally:
        # the command has ended: a late Ctrl-C must not change its exit code
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run_without_raising(argv: list[str]) -> int:
    try:
        _open_closed_streams()
        _set_encoding_errors()
        _set_blocking()
        return _run_to_exit_code(argv)
    except KeyboardInterrupt:
        return STOPPED
    finally:
        _flush_or_discard_stdout()


def _run_to_exit_code(argv: list[str]) -> int:
    try:
        code = _dispatch(argv)
        with suppress(BrokenPipeError):  # the reader closed the pipe after the command had done its work
            sys.stdout.flush()
        return code
    except SystemExit as exc:  # argparse: 0 after --help, 2 after a usage error
        return exc.code if isinstance(exc.code, int) else FAILED
    except SettingsError as exc:
        return _print_error(str(exc), USAGE)
    except AgenticXError as exc:
        return _print_error(str(exc), FAILED)
    except BrokenPipeError:  # the reader closed the pipe; nothing more can be printed to it
        return FAILED
    except OSError as exc:  # a full disk, a missing or read-only folder: not a bug of ours
        return _print_error(_sentence_about(exc), FAILED)
    except MemoryError:
        return _print_error("out of memory; free some, or raise the limit (`ulimit -v`)", OUT_OF_MEMORY_EXIT_CODE)
    except Exception as exc:
        return _report_bug(exc)


def _sentence_about(error: OSError) -> str:
    if error.filename:
        return f"{error.filename}: {error.strerror}"
    reason = error_text(error)
    try:
        sys.stdout.flush()
    except OSError:  # what was printed is still in its buffer
        return f"the output cannot be written: {reason}"
    return reason


def _open_closed_streams() -> None:
    """Open /dev/null for each standard stream that the caller closed.

    Otherwise the next file that is opened would get the stream's descriptor.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            with suppress(OSError):  # usually closed already
                os.close(descriptor)
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor: this one
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _set_encoding_errors() -> None:
    """Set the error handlers of the standard streams so that no character raises.

    A printed character that the terminal's encoding lacks is escaped; bytes on stdin that are not text become U+FFFD.
    """
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _set_blocking() -> None:
    """Make writes to the standard streams wait for a slow reader.

    A parent such as Node.js may pass on a non-blocking pipe; the rest of a long text would be lost in it.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # io.UnsupportedOperation too: a stream in memory
            os.set_blocking(stream.fileno(), True)


def _flush_or_discard_stdout() -> None:
    """Flush stdout; if that fails, redirect it to /dev/null so that the interpreter's own flush at exit succeeds."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(argv: list[str]) -> int:
    if argv[:1] == ["help"] and len(argv) > 1:
        argv = [*argv[1:], "--help"]
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_help_text())
        return DONE
    if argv[0] in ("-V", "--version"):
        print(f"agx {__version__}")
        return DONE
    command = find_command(argv[0])
    if command is None:
        return _report_unknown_command(argv[0])
    arguments = parser_of(command).parse_args(argv[1:])
    raise_on_ctrl_c()
    return command.run(arguments)


def _help_text() -> str:
    rows = [f"  {command.name:<12} {command.summary}" for command in BUILTIN_COMMANDS.values()]
    for name, command in commands_from_entry_points().items():
        summary = f"(cannot be loaded: {command})" if isinstance(command, Exception) else command.summary
        rows.append(f"  {name:<12} {summary}")
    return "\n".join(
        (
            "usage: agx COMMAND [arguments]",
            "",
            "AgenticX: an agent that works in your folder and asks before it changes anything.",
            "",
            "commands (agx help COMMAND shows the details):",
            *rows,
            "",
            _EXAMPLES,
        )
    )


def _report_unknown_command(word: str) -> int:
    names = [*BUILTIN_COMMANDS, *commands_from_entry_points()]
    similar = similar_names(word, names, number=2, cutoff=0.5)
    if word.startswith("-"):
        hint = "options come after the command; agx --help shows the commands"
    elif similar:
        hint = "did you mean " + " or ".join(f"`agx {name}`" for name in similar) + "?"
    else:
        hint = f"known commands: {', '.join(sorted(names))}"
    return _print_error(f"unknown command {word!r}; {hint}", USAGE)


def _print_error(message: str, code: int) -> int:
    from agenticx.tools.visible import visible_line  # imported here: --help does not need its package

    with suppress(OSError):
        print(f"agx: {visible_line(message, 4_000)}", file=sys.stderr)
    return code


def _report_bug(exc: Exception) -> int:
    """Print an unexpected exception as a bug, with its traceback (secrets removed) for the report."""
    import traceback

    from agenticx.logs import redact
    from agenticx.tools.visible import escape_controls

    print(escape_controls(redact("".join(traceback.format_exception(exc)))), end="", file=sys.stderr)
    return _print_error(f"internal error ({type(exc).__name__}); this is a bug, please report the lines above", FAILED)
