"""The `agx completion` command: completion scripts for shells."""

from __future__ import annotations

from argparse import OPTIONAL, SUPPRESS, Action, ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from agenticx.cli.exit_codes import DONE
from agenticx.cli.registry import BUILTIN_COMMANDS, commands_from_entry_points, parser_of
from agenticx.errors import SettingsError

__all__ = ["configure", "run"]

_EPILOG = """\
examples:
  agx completion bash > ~/.local/share/bash-completion/completions/agx
  agx completion zsh > "${fpath[1]}/_agx"
  agx completion fish > ~/.config/fish/completions/agx.fish
  source <(agx completion bash)              for this shell only

Commands, actions and options are in the script; the values of sessions, models, agents, teams, rules and tools are
asked for when Tab is pressed.

exit codes: 0 done, 2 usage"""

_KINDS = frozenset({"session", "model", "agent", "team", "rule", "tool"})
"""The arguments whose values `completion_values` has, by their names."""


@dataclass(frozen=True, slots=True)
class _Words:
    """The words that may follow a command or action: options and actions, each with a summary.

    `values` maps each option that takes a value, and "" for the first argument, to its values: words, the name of a
    kind such as `model`, or "" if they are not known, for example for a path.
    """

    summary: str
    options: dict[str, str] = field(default_factory=dict[str, str])
    actions: dict[str, _Words] = field(default_factory=dict[str, "_Words"])
    values: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def text(self) -> str:
        """All words that may follow, actions first, for a shell to expand."""
        values = self.values.get("", "")
        return " ".join((*self.actions, *([f"$(_agx_values {values})"] if values in _KINDS else []), *self.options))


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx completion` to its parser."""
    parser.epilog = _EPILOG
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), nargs=OPTIONAL, help="the shell")
    parser.add_argument("--values", choices=sorted(_KINDS), help=SUPPRESS)


def run(arguments: Namespace) -> int:
    """Run `agx completion` and return its exit code."""
    if arguments.values is not None:
        from agenticx.cli.commands.completion_values import values_of  # it imports the sessions

        print("\n".join(values_of(arguments.values)))
        return DONE
    if arguments.shell is None:
        raise SettingsError("name the shell: bash, zsh or fish")
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
            if action.nargs != 0:
                found.values[option] = _values(action)
        choices: Any = action.choices
        if isinstance(choices, dict):  # the parsers of actions such as `sessions list`
            parsers = cast("dict[str, ArgumentParser]", choices)
            found.actions.update({name: _words(inner, inner.description or "") for name, inner in parsers.items()})
        elif action.option_strings:
            continue
        elif choices is not None:
            found.actions.update({str(choice): _Words("") for choice in choices})
        elif "" not in found.values and not found.actions:
            found.values[""] = _values(action)
    return found


def _values(action: Action) -> str:
    """Return the values of an argument, with blanks between them, or their kind; "" if they are not known."""
    if action.choices is not None:
        return " ".join(map(str, action.choices))
    return action.dest if action.dest in _KINDS else ""


# --- the scripts ------------------------------------------------------------------------------------------------------


def _option_values(commands: Mapping[str, _Words]) -> dict[str, str]:
    """Return the values of the options that take one in every command that has them: the same values in each."""
    every = [inner for words in commands.values() for inner in (words, *words.actions.values())]
    without = {option for words in every for option in words.options if option not in words.values}
    found = {option: values for words in every for option, values in words.values.items() if option}
    return {option: found[option] for option in sorted(found) if option not in without}


def _cases(commands: Mapping[str, _Words], *, command: str, action: str, at: str, first: int) -> Iterator[str]:
    """Yield the lines that set `candidates`; the arguments are shell expressions."""
    option_values = _option_values(commands)
    yield '    case "$previous" in'
    for option, values in option_values.items():
        if values:
            found = f"$(_agx_values {values})" if values in _KINDS else values
            yield f'    {option}) candidates="{found}" ;;'
    yield f"    {'|'.join(option for option, values in option_values.items() if not values)}) ;;  # files"
    yield "    *)"
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
    yield "    fi ;;"
    yield "    esac"


_VALUES = """\
_agx_values() {
    [[ "$current" == -* ]] || agx completion --values "$1" 2>/dev/null
}"""


def _bash(commands: Mapping[str, _Words]) -> Iterator[str]:
    yield "# bash completion of agx, written by `agx completion bash`"
    yield _VALUES
    yield "_agx() {"
    yield '    local line="${COMP_LINE:0:COMP_POINT}" candidates="" words'
    yield '    local current="${line##*[[:space:]]}"'
    yield '    read -ra words <<< "${line%"$current"}"  # unlike COMP_WORDS, not cut at the colon of a model'
    yield '    local at="${#words[@]}" previous="${words[-1]}"'
    yield '    words+=("$current")'
    yield '    if [[ "$current" == --*=* ]]; then previous="${current%%=*}" current="${current#*=}"; fi'
    yield from _cases(commands, command="${words[1]}", action="${words[2]}", at="$at", first=1)
    yield '    COMPREPLY=($(compgen -W "$candidates" -- "$current"))'
    yield '    local colon="${current%"${current##*:}"}"'
    yield '    [[ "$COMP_WORDBREAKS" != *:* ]] || COMPREPLY=("${COMPREPLY[@]#"$colon"}")'
    yield "}"
    yield "complete -o default -F _agx agx agenticx"


def _zsh(commands: Mapping[str, _Words]) -> Iterator[str]:
    yield "#compdef agx agenticx"
    yield "# zsh completion of agx, written by `agx completion zsh`"
    yield _VALUES
    yield "_agx() {"
    yield '    local candidates="" current="$PREFIX" previous="${words[CURRENT-1]}"'
    yield '    if [[ "$current" == --*=* ]]; then'
    yield '        previous="${current%%=*}" current="${current#*=}"'
    yield "        compset -P 1 '*='"
    yield "    fi"
    yield from _cases(commands, command="${words[2]}", action="${words[3]}", at="$CURRENT", first=2)
    yield "    compadd -- ${=candidates} || _files"
    yield "}"
    yield 'if [[ "${funcstack[1]}" == "_agx" ]]; then _agx "$@"; else compdef _agx agx agenticx; fi'


def _fish(commands: Mapping[str, _Words]) -> Iterator[str]:
    yield "# fish completion of agx, written by `agx completion fish`"
    yield _FISH_CONDITIONS
    for option, summary in (("--help", "The commands"), ("--version", "The version")):
        yield _fish_line("__agx_at", _fish_option(option), summary)
    for name, words in commands.items():
        yield _fish_line("__agx_at", f"-f -a {name}", words.summary)
        for action, inner in words.actions.items():
            yield _fish_line(f"__agx_at {name}", f"-f -a {action}", inner.summary)
            yield from _fish_words(f"__agx_after {name} {action}", inner)
        yield from _fish_words(f"__agx_after {name}", words)
    yield "complete -c agenticx -w agx"


_FISH_CONDITIONS = """\
function __agx_at  # true if the words between agx and the cursor are these
    set -l words (commandline -opc)
    test "$words[2..-1]" = "$argv"
end
function __agx_after  # true if the words after agx begin with these
    set -l words (commandline -opc) ""
    set -l last (math 1 + (count $argv))
    test "$words[2..$last]" = "$argv"
end"""


def _fish_words(condition: str, words: _Words) -> Iterator[str]:
    """Yield the lines of the options and the first argument of a command or action."""
    if words.values.get(""):
        yield _fish_line(condition, f"-f -a {_fish_values(words.values[''])}", "")
    for option, summary in words.options.items():
        values = words.values.get(option)
        takes = "" if values is None else f" -x -a {_fish_values(values)}" if values else " -r"
        yield _fish_line(condition, _fish_option(option) + takes, summary)


def _fish_values(values: str) -> str:
    return f"'(agx completion --values {values} 2>/dev/null)'" if values in _KINDS else f"'{values}'"


def _fish_line(condition: str, words: str, summary: str) -> str:
    quoted = summary.replace("\\", "\\\\").replace("'", "\\'")
    return f"complete -c agx -n '{condition}' {words}" + (f" -d '{quoted}'" if quoted else "")


def _fish_option(option: str) -> str:
    return f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
