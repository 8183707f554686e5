"""`agx`: finds the command that a person typed, runs it, and turns whatever comes back into an exit code."""

from __future__ import annotations

import io
import os
import signal
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version

from agenticx.cli.commands import BUILTIN, Command, command_named, commands_from_entry_points
from agenticx.cli.exit_codes import DONE, FAILED, OUT_OF_MEMORY_EXIT_CODE, STOPPED, USAGE
from agenticx.cli.loading import raise_on_ctrl_c
from agenticx.errors import AgenticXError, SettingsError

__all__ = ["main"]

_EXAMPLES = """\
examples:
  agx run "List the files here"              one turn; without a key it is the offline demo
  git diff | agx run - --model openai-chat:gpt-4.1-mini
  agx run "And the largest?" --session last  goes on with the session that was used last
  agx chat                                   a conversation; Ctrl-C stops a turn, Ctrl-D leaves
  agx serve --open                           the studio in your browser
  agx doctor                                 what is set up and what is missing

exit codes: 0 final, 1 fatal error, 2 usage, 130 stopped"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises, SystemExit included."""
    if argv is not None:
        return _guarded(list(argv))
    try:
        return _guarded(sys.argv[1:])
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command is over: a late Ctrl-C cannot change its exit code


def _guarded(words: list[str]) -> int:
    try:
        _open_closed_streams()
        _never_fail_at_characters()
        return _run(words)
    except KeyboardInterrupt:
        return STOPPED
    finally:
        _let_go_of_stdout()


def _run(words: list[str]) -> int:
    try:
        code = _dispatch(words)
        with suppress(BrokenPipeError):  # whoever read our output has enough; what was done is done
            sys.stdout.flush()
        return code
    except SystemExit as exc:  # argparse: 0 after --help, 2 after a usage error
        return exc.code if isinstance(exc.code, int) else FAILED
    except SettingsError as exc:
        return _complain(str(exc), USAGE)
    except AgenticXError as exc:
        return _complain(str(exc), FAILED)
    except BrokenPipeError:  # whoever read our output left; nothing more can be said there
        return FAILED
    except OSError as exc:  # a full disk, a folder that is gone or may not be written to: the machine's trouble
        return _complain(f"{exc.filename}: {exc.strerror}" if exc.filename else str(exc), FAILED)
    except MemoryError:
        return _complain("out of memory; free some, or raise the limit (`ulimit -v`)", OUT_OF_MEMORY_EXIT_CODE)
    except Exception as exc:
        return _internal(exc)


def _open_closed_streams() -> None:
    """A standard stream that the caller closed reads nothing and takes all, else the next file would be it."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            with suppress(OSError):  # it is closed, as a rule
                os.close(descriptor)
            os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor: this one
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _never_fail_at_characters() -> None:
    """What is printed and the terminal's encoding lacks is spelled out, and what is no text when read is U+FFFD."""
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _let_go_of_stdout() -> None:
    """What cannot be written any more must not fail once more when the interpreter ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help_text())
        return DONE
    if words[0] in ("-V", "--version"):
        print(f"agx {version('agenticx')}")
        return DONE
    command = command_named(words[0])
    if command is None:
        return _unknown(words[0])
    arguments = _parse(command, words[1:])
    raise_on_ctrl_c()
    return command.run(arguments)


def _parse(command: Command, words: list[str]) -> Namespace:
    parser = ArgumentParser(
        prog=f"agx {command.name}",
        description=f"{command.summary}.",
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.configure(parser)
    return parser.parse_args(words)


def _help_text() -> str:
    rows = [f"  {command.name:<12} {command.summary}" for command in BUILTIN.values()]
    for name, command in commands_from_entry_points().items():
        summary = f"(cannot be loaded: {command})" if isinstance(command, Exception) else command.summary
        rows.append(f"  {name:<12} {summary}")
    return "\n".join(
        (
            "usage: agx COMMAND [arguments]",
            "",
            "AgenticX: an agent that works in your folder and asks before it changes anything.",
            "",
            "commands (agx COMMAND --help says more):",
            *rows,
            "",
            _EXAMPLES,
        )
    )


def _unknown(word: str) -> int:
    from difflib import get_close_matches

    names = [*BUILTIN, *commands_from_entry_points()]
    near = get_close_matches(word, names, n=2, cutoff=0.5)
    if word.startswith("-"):
        hint = "options come after the command; agx --help shows the commands"
    elif near:
        hint = "did you mean " + " or ".join(f"`agx {name}`" for name in near) + "?"
    else:
        hint = f"known commands: {', '.join(sorted(names))}"
    return _complain(f"unknown command {word!r}; {hint}", USAGE)


def _complain(sentence: str, code: int) -> int:
    from agenticx.tools.visible import visible_line  # its package is more than --help needs

    with suppress(OSError):
        print(f"agx: {visible_line(sentence, 4_000)}", file=sys.stderr)
    return code


def _internal(exc: Exception) -> int:
    """A bug of ours: say so and where, with the traceback (without secrets) for whoever reports it."""
    import traceback

    from agenticx.logs import redact
    from agenticx.tools.visible import without_controls

    print(without_controls(redact("".join(traceback.format_exception(exc)))), end="", file=sys.stderr)
    return _complain(f"internal error ({type(exc).__name__}); this is a bug, please report the lines above", FAILED)
