"""The `agx completion` command: scripts with which a shell completes the words of `agx`."""

from __future__ import annotations

from argparse import SUPPRESS, Action, ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from agenticx.cli.exit_codes import DONE
from agenticx.cli.registry import BUILTIN_COMMANDS, commands_from_entry_points, parser_of

__all__ = ["configure", "run"]

_EPILOG = """\
examples:
  agx completion bash > ~/.local/share/bash-completion/completions/agx
  agx completion zsh > "${fpath[1]}/_agx"
  agx completion fish > ~/.config/fish/completions/agx.fish
  source <(agx completion bash)              for this shell only

exit codes: 0 done, 2 usage"""


@dataclass(frozen=True, slots=True)
class _Words:
    """The words that may follow a command or action: options and actions, each with a summary."""

    summary: str
    options: dict[str, str] = field(default_factory=dict[str, str])
    actions: dict[str, _Words] = field(default_factory=dict[str, "_Words"])

    @property
    def text(self) -> str:
        """All words that may follow, those of actions first."""
        return " ".join((*self.actions, *self.options))


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx completion` to its parser."""
    parser.epilog = _EPILOG
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


def run(arguments: Namespace) -> int:
    """Run `agx completion` and return its exit code."""
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell]
    print("\n".join(write(_all_commands())))
    return DONE


def _all_commands() -> dict[str, _Words]:
    """Return what may follow each command; one of another package that fails is left out."""
    found: dict[str, _Words] = {}
    for name, command in (*BUILTIN_COMMANDS.items(), *commands_from_entry_points().items()):
        if not isinstance(command, Exception):
            with suppress(Exception):
                found[name] = _words(parser_of(command), command.summary)
    return {**found, "help": _Words("The help of a command", {}, {name: _Words("") for name in found})}


def _words(parser: ArgumentParser, summary: str) -> _Words:
    found = _Words(summary)
    for action in cast("list[Action]", vars(parser)["_actions"]):
        for option in action.option_strings if action.help != SUPPRESS else ():
            found.options[option] = (action.help or "").partition(";")[0]
        choices: Any = action.choices
        if isinstance(choices, dict):  # the parsers of actions such as `sessions list`
            parsers = cast("dict[str, ArgumentParser]", choices)
            found.actions.update({name: _words(inner, inner.description or "") for name, inner in parsers.items()})
        elif choices is not None and not action.option_strings:
            found.actions.update({str(choice): _Words("") for choice in choices})
    return found


# --- the scripts ------------------------------------------------------------------------------------------------------


def _cases(commands: Mapping[str, _Words], *, command: str, action: str, at: str, first: int) -> Iterator[str]:
    """Yield the lines of a `case` that sets `candidates`; the arguments are shell expressions."""
    yield f"    if [[ {at} -eq {first} ]]; then"
    yield f'        candidates="{" ".join(commands)} --help --version"'
    yield "    else"
    yield f'        case "{command}" in'
    for name, words in commands.items():
        yield f"        {name})"
        if not any(inner.text for inner in words.actions.values()):
            yield f'            candidates="{words.text}" ;;'
            continue
        yield f'            case "{action}" in'
        for inner_name, inner in words.actions.items():
            yield f'            {inner_name}) candidates="{inner.text}" ;;'
        yield f'            *) candidates="{words.text}" ;;'
        yield "            esac ;;"
    yield "        esac"
    yield "    fi"


def _bash(commands: Mapping[str, _Words]) -> Iterator[str]:
    yield "# bash completion of agx, written by `agx completion bash`"
    yield "_agx() {"
    yield '    local candidates="" current="${COMP_WORDS[COMP_CWORD]}"'
    yield from _cases(commands, command="${COMP_WORDS[1]}", action="${COMP_WORDS[2]}", at="$COMP_CWORD", first=1)
    yield '    COMPREPLY=($(compgen -W "$candidates" -- "$current"))'
    yield "}"
    yield "complete -o default -F _agx agx agenticx"


def _zsh(commands: Mapping[str, _Words]) -> Iterator[str]:
    yield "#compdef agx agenticx"
    yield "# zsh completion of agx, written by `agx completion zsh`"
    yield "_agx() {"
    yield '    local candidates=""'
    yield from _cases(commands, command="${words[2]}", action="${words[3]}", at="$CURRENT", first=2)
    yield "    compadd -- ${=candidates} || _files"
    yield "}"
    yield 'if [[ "${funcstack[1]}" == "_agx" ]]; then _agx "$@"; else compdef _agx agx agenticx; fi'


def _fish(commands: Mapping[str, _Words]) -> Iterator[str]:
    yield "# fish completion of agx, written by `agx completion fish`"
    for program in ("agx", "agenticx"):
        for name, words in commands.items():
            yield _fish_line(program, "__fish_use_subcommand", f"-f -a {name}", words.summary)
            seen = f"__fish_seen_subcommand_from {name}"
            for action, inner in words.actions.items():
                missing = f"{seen}; and not __fish_seen_subcommand_from {' '.join(words.actions)}"
                yield _fish_line(program, missing, f"-f -a {action}", inner.summary)
                for option, summary in inner.options.items():
                    both = f"{seen}; and __fish_seen_subcommand_from {action}"
                    yield _fish_line(program, both, _fish_option(option), summary)
            for option, summary in words.options.items():
                yield _fish_line(program, seen, _fish_option(option), summary)


def _fish_line(program: str, condition: str, words: str, summary: str) -> str:
    quoted = summary.replace("\\", "\\\\").replace("'", "\\'")
    return f"complete -c {program} -n '{condition}' {words}" + (f" -d '{quoted}'" if quoted else "")


def _fish_option(option: str) -> str:
    return f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
