"""The commands that a simple command may run itself: behind `sudo`, `xargs` or `bash -c`, in options, as code.

The tables list programs that run others. Anything else, for example a script, makes the reading incomplete.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agenticx.tools.shell.read_only_programs import can_only_read

__all__ = ["ASSIGNMENT", "MAX_DEPTH", "FoundCommands"]

MAX_DEPTH = 12
_MAX_RUNS = 2_000
_MAX_EXECUTED = 20
_MAX_GUESSED = 64
_MAX_INNER_CHARS = 512 * 1024

_KEYWORDS = frozenset({"!", "{", "}", "coproc", "do", "elif", "else", "fi", "done", "if", "then", "until", "while"})
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^][\s<>;&|]*\])?\+?=")

_SHELLS = frozenset({"ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "rbash", "sh", "tcsh", "yash", "zsh"})
# Programs that run code in another language, or a script, and how they are called to run tests.
_LANGUAGES: dict[str, tuple[str, ...]] = {
    "R": (), "Rscript": (), "bun": ("test",), "deno": ("test", "fmt", "lint", "check"), "emacs": (), "ex": (),
    "expect": (), "gdb": (), "irb": (), "java": (), "julia": (), "lldb": (), "lua": (), "luajit": (),
    "node": ("--test",), "nodejs": ("--test",), "nvim": (), "osascript": (),
    "perl": (), "php": (), "pwsh": (), "pypy": (), "python": (),
    "ruby": (), "tclsh": (), "vi": (), "vim": (), "wish": (),
}  # fmt: skip
_MODULES = frozenset(
    {"black", "build", "compileall", "flake8", "isort", "mypy", "pip", "pylint", "pyright", "pytest", "ruff", "tox",
     "unittest", "venv"}
)  # fmt: skip
_INFORMATION = frozenset({"--version", "-V", "--help", "-h"})
_SCRIPT = re.compile(r".*\.(?:bash|bat|cjs|js|lua|mjs|php|pl|ps1|py|rb|sh|ts|zsh)", re.DOTALL)
_AWK_CODE = re.compile(r"system|[|@]|^-[fiElef]|^--")
_GIT_CONFIG = re.compile(r"(?:alias|include|core|pager|filter|diff|merge|credential)\w*\.|-[ef]", re.IGNORECASE)
_SYSTEM_FOLDERS = tuple(f"{root}{name}/" for root in ("/", "/usr/", "/usr/local/") for name in ("bin", "sbin"))
_LANGUAGE = re.compile(r"([a-zA-Z]+)[\d.]*")
# Options whose value is a command: a regular expression of the letters, and the long names.
_CODE_OPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "bsdtar": ("", ("--use-compress-program",)),
    "compgen": ("[CF]", ()),
    "complete": ("[CF]", ()),
    "dpkg": ("", ("--pre-invoke", "--post-invoke", "--status-logger")),
    "fd": ("[xX]", ("--exec", "--exec-batch")),
    "fdfind": ("[xX]", ("--exec", "--exec-batch")),
    "git archive": ("", ("--exec",)),
    "git bisect": ("", ()),
    "git clone": ("u", ("--upload-pack", "--config")),
    "git difftool": ("x", ("--extcmd",)),
    "git fetch": ("", ("--upload-pack",)),
    "git filter-branch": ("", ("--env-filter", "--tree-filter", "--index-filter", "--parent-filter", "--msg-filter",
                               "--commit-filter", "--tag-name-filter", "--setup")),
    "git grep": ("O", ("--open-files-in-pager",)),
    "git ls-remote": ("", ("--upload-pack", "--exec")),
    "git pull": ("", ("--upload-pack",)),
    "git push": ("", ("--receive-pack", "--exec")),
    "git send-email": ("", ("--sendmail-cmd", "--smtp-server", "--to-cmd", "--cc-cmd", "--header-cmd")),
    "git rebase": ("x", ("--exec",)),
    "go": ("", ("-exec", "-toolexec", "-vettool")),
    "gtar": ("[IF]", ("--checkpoint-action", "--to-command", "--use-compress-program", "--info-script",
                    "--new-volume-script", "--rsh-command", "--rmt-command")),
    "helm": ("", ("--post-renderer",)),
    "install": ("", ("--strip-program",)),
    "make": ("", ("--eval",)),
    "man": ("[PH]", ("--pager", "--html")),
    "mapfile": ("C", ()),
    "pytest": ("", ("--debugger",)),
    "readarray": ("C", ()),
    "rg": ("", ("--pre", "--hostname-bin")),
    "rsync": ("e", ("--rsh", "--rsync-path")),
    "sftp": ("[DS]", ()),
    "scp": ("S", ()),
    "sort": ("", ("--compress-program",)),
    "split": ("", ("--filter",)),
    "tar": ("[IF]", ("--checkpoint-action", "--to-command", "--use-compress-program", "--info-script",
                   "--new-volume-script", "--rsh-command", "--rmt-command")),
    "wget": ("", ("--use-askpass",)),
    "zip": ("TT", ("--unzip-command",)),
}  # fmt: skip
_GIT_VALUED = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--attr-source", "--super-prefix")
_HARMLESS_SETTINGS = ("advice.", "color.", "commit.gpgsign", "core.quote", "user.")
# Variables that change which programs run, or what they run. Of git there are more, and they are about git alone.
_CHANGING = re.compile(
    r"(?:PATH|LD_\w+|DYLD_\w+|BASH_ENV|ENV|IFS|SHELLOPTS|BASHOPTS|PS[0-4]|PROMPT_COMMAND|BASH_FUNC_.*|BASH_\w+|HOME|"
    r"XDG_CONFIG_\w+|SHELL|LESSOPEN|LESSCLOSE|\w*PAGER|\w*EDITOR|VISUAL|BROWSER|\w*ASKPASS|MAKEFLAGS|\w*_WRAPPER|"
    r"PYTHON(?:PATH|HOME|STARTUP|BREAKPOINT)|NODE_OPTIONS|NODE_PATH|PERL5\w+|RUBY\w+|GIT_\w*|"
    r"CDPATH|GLOBIGNORE|RSYNC_RSH|TAR_OPTIONS|GCONV_PATH|(?i:npm_config_\w+)|RUSTC\w*|GOFLAGS|"
    r"CARGO_(?:ALIAS_\w+|HOME|BUILD_RUSTC\w*|TARGET_\w+_(?:RUNNER|LINKER)))(?:\[|\+?=|$)",
    re.DOTALL,
)
_DECLARING = frozenset({"declare", "export", "getopts", "local", "mapfile", "read", "readarray", "readonly",
                        "typeset"})  # fmt: skip
_PROGRAM_VALUE = re.compile(r"(\w*PAGER|\w*EDITOR|VISUAL)=(?:cat|true|:|less|more|vi|vim|nano)")
_SED_FLAGS = ("--in-place", "--null-data", "--quiet", "--regexp-extended", "--silent")
_SED_ADDRESS = r"(?:\d++|\$|/[^/\\\n]*+(?:\\.[^/\\\n]*+)*/I?)"
_SED_SUBSTITUTION = "|".join(
    rf"{mark}(?:[^{mark}\\\n]*+(?:\\.[^{mark}\\\n]*+)*{mark}){{2}}" for mark in ("/", r"\|", "#", ",", "@")
)
_SED_SCRIPT = re.compile(
    rf"(?:[\s;{{}}]*+(?:{_SED_ADDRESS}(?:[,~]\s*+[+~]?{_SED_ADDRESS})?\s*+)?!?\s*+"
    rf"(?:s(?:{_SED_SUBSTITUTION})[gpiI\d]*+|[=dDgGhHlnNpPqQxz]|[aic][^\n\\]*+)[ \t]*+(?=[;\n}}]|\Z))*[\s;{{}}]*+",
    re.DOTALL,
)
# Programs that change what words mean, or run code in their arguments or input.
_OPAQUE = frozenset(
    """
    . alias ansible ansible-playbook at batch bb bpftrace cabal clojure crontab dc ed elixir elvish enable erl ghc
    ghci gnuplot groovy guile hash iex ipython jshell lftp m4 maxima mutt nu octave osh racket runghc runhaskell sbcl
    scala shopt source stack stap swipl xonsh ysh
    """.split()  # noqa: SIM905
)
# Code of a database client that may run programs, and by client the options with code.
_SQL_CODE = re.compile(
    r"\\|(?:^|\n)\s*(?:\.|system\b)|\b(?:edit|load_extension|writefile|program)\b|^--?(?:cmd|init|[fF]|file|pset)",
    re.IGNORECASE,
)
_SQL_OPTIONS: dict[str, tuple[str, ...]] = {
    "duckdb": ("-c", "-s"), "mariadb": ("-e", "--execute"), "mysql": ("-e", "--execute"), "psql": ("-c", "--command"),
    "sqlite3": (),
}  # fmt: skip
# More programs that run none of their arguments; programs that only read are not listed again.
_PLAIN_PROGRAMS = frozenset(
    """
    apk apt apt-get aptitude awk black brew bzip2 c++ cargo cc chmod chown clang clang++ cmake cp ctest curl dd declare
    dnf docker eslint exit export g++ gawk gcc gem gh git glab go gradle gunzip gzip hg install isort java jest just
    kill killall kubectl ld ln local make gmake mawk mkdir mktemp mv mvn mypy nawk ninja node nox npm pacman patch
    pip pip3 pkill podman poetry popd prettier pushd pyright pytest python read readonly return rm rmdir rsync ruff
    rustc scp set shift shred sleep svn systemctl tar tee terraform touch tox truncate tsc typeset unlink unset unzip uv
    vitest wait wget xz yum zip zstd [ [[
    """.split()  # noqa: SIM905
)
_NAME = re.compile(r"[\w.+-]+")
# Words by which these programs run a program that is not read: options and subcommands.
_CODE_WORDS = {
    program: re.compile(regex, re.DOTALL)
    for programs, regex in {
        "apt apt-get aptitude": r"-[oc]|--(?:opt|config)",
        "c++ cc clang clang++ g++ gcc rustc": r"-wrapper|-?-f?plugin|-specs|-B|@|.*linker=",
        "gmake make": r"\w+(?:::|[:+?!])?=.* |SHELL\W?=|-\Z|/|-\w*f[-/]|--\w+=[-/]",
        "less more": r"\+|-k|--lesskey",
        "scp sftp": r"-[oFb]",
    }.items()
    for program in programs.split()
}


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """A program that runs another one: its options with a value, and the number of operands before the program."""

    valued: str = ""
    long_valued: tuple[str, ...] = ()
    operands: int = 0
    takes_assignments: bool = False
    is_code: bool = False
    """True if the rest is code of the shell, joined by blanks."""
    attached: str = ""
    """The options whose value, if there is one, is in the same word."""
    adds_arguments: bool = False
    """True if it runs the program with more arguments than are written."""


_WRAPPERS = {
    "builtin": _Wrapper(),
    "busybox": _Wrapper(),
    "caffeinate": _Wrapper("tw"),
    "chroot": _Wrapper("", ("--userspec", "--groups"), operands=1),
    "chrt": _Wrapper("TPD", ("--sched-runtime", "--sched-period", "--sched-deadline"), operands=1),
    "command": _Wrapper(),
    "doas": _Wrapper("uC"),
    "env": _Wrapper("uCS", ("--unset", "--chdir", "--split-string"), takes_assignments=True),
    "eval": _Wrapper(is_code=True),
    "exec": _Wrapper("a"),
    "flock": _Wrapper("wE", ("--timeout", "--wait", "--conflict-exit-code"), operands=1),
    "gtimeout": _Wrapper("ks", ("--kill-after", "--signal"), operands=1),
    "ionice": _Wrapper("cnpPu", ("--class", "--classdata", "--pid", "--pgid", "--uid")),
    "nice": _Wrapper("n", ("--adjustment",)),
    "nohup": _Wrapper(),
    "parallel": _Wrapper("jNnIaLS", ("--jobs", "--max-args", "--arg-file"), is_code=True, adds_arguments=True),
    "setsid": _Wrapper(),
    "ssh": _Wrapper("BbcDEeFIiJLlmOopPQRSWw", operands=1, is_code=True),
    "stdbuf": _Wrapper("ioe", ("--input", "--output", "--error")),
    "sudo": _Wrapper(
        "ughpCDrtTUR",
        ("--user", "--group", "--host", "--prompt", "--close-from", "--chdir", "--role", "--type",
         "--command-timeout", "--other-user", "--chroot"),
        takes_assignments=True,
    ),
    "taskset": _Wrapper(operands=1),
    "time": _Wrapper("fo", ("--format", "--output")),
    "timeout": _Wrapper("ks", ("--kill-after", "--signal"), operands=1),
    "toybox": _Wrapper(),
    "trap": _Wrapper(is_code=True),
    "unbuffer": _Wrapper(),
    "watch": _Wrapper("nq", ("--interval", "--equexit"), is_code=True, attached="d"),
    "xargs": _Wrapper(
        "aEdILnPs",
        ("--arg-file", "--delimiter", "--max-args", "--max-procs", "--max-chars", "--process-slot-var"),
        attached="eil",
        adds_arguments=True,
    ),
}  # fmt: skip
# The long options of these programs that have no value, or have it in the same word.
_LONG_FLAGS = frozenset(
    {"--append", "--background", "--block-signal", "--default-signal", "--differences", "--eof", "--exclusive",
     "--exit", "--foreground", "--ignore-environment", "--ignore-signal", "--interactive", "--login", "--max-lines",
     "--no-run-if-empty", "--non-interactive", "--nonblock", "--null", "--open-tty", "--portability",
     "--preserve-env", "--preserve-status", "--quiet", "--replace", "--set-home", "--shared", "--stdin", "--verbose"}
)  # fmt: skip
# Programs of the next table whose first argument is the program.
_DIRECT_LAUNCHERS = frozenset(
    {"catchsegv", "entr", "fakeroot", "linux32", "linux64", "ltrace", "npx", "bunx", "pnpx", "uvx", "strace",
     "dbus-run-session", "ssh-agent", "ccache", "chronic", "distcc", "dumb-init", "eatmydata", "gamemoderun", "gtime",
     "ifne", "multitime", "nocache", "optirun", "primusrun", "proxychains", "proxychains4", "sccache", "tini", "torify",
     "torsocks", "tsocks", "vglrun", "zrun",
     "unshare", "valgrind", "firejail", "systemd-run", "pkexec", "run0", "xvfb-run"}
)  # fmt: skip
# Programs with so many options that the program which they run is read only if it is the next word.
_LAUNCHERS = _DIRECT_LAUNCHERS | frozenset(
    {"abduco", "alacritty", "asciinema", "autossh", "capsh", "cgexec", "chpst", "concurrently", "cross-env",
     "daemonize", "dotenv", "dtach", "env-cmd", "gnome-terminal", "kitty", "konsole", "lckdo", "machinectl", "mispipe",
     "mosh", "nix-shell", "nodemon", "pdsh", "pee", "rsh", "run-parts", "rush", "schedtool", "sem", "setlock", "sg",
     "softlimit", "sshpass", "su-exec", "systemd-cat", "systemd-inhibit", "systemd-nspawn", "tmate", "watchexec",
     "xterm",
     "bwrap", "catchsegv", "choom", "cpulimit", "dbus-run-session", "entr", "faketime", "fakeroot",
     "firejail", "gosu", "hyperfine", "linux32", "linux64", "ltrace", "nsenter", "numactl", "perf", "prlimit",
     "proot", "rlwrap", "runcon", "runuser", "script", "setarch", "setpriv", "ssh-agent", "strace", "su",
     "systemd-run", "tmux", "screen", "unshare", "valgrind", "xvfb-run", "npx", "bunx", "pnpx", "uvx", "pipx", "tsx",
     "x86_64", "i386", "pkexec", "run0", "start-stop-daemon", "dbus-launch", "direnv", "mise", "asdf"}
)  # fmt: skip
_LAUNCHING_SUBCOMMANDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("apptainer", "singularity"), ("exec", "run", "shell")),
    **dict.fromkeys(("aws-vault", "chamber", "fnm", "lxc", "multipass", "opam", "pyenv", "rbenv"), ("exec",)),
    **dict.fromkeys(("conda", "mamba", "micromamba"), ("run",)),
    **dict.fromkeys(("docker", "docker-compose", "nerdctl", "podman"), ("exec", "run")),
    **dict.fromkeys(("doppler", "foreman", "heroku", "honcho", "infisical", "op", "rustup", "volta"), ("run",)),
    **dict.fromkeys(("hatch", "pdm", "pipenv", "poetry", "rye", "uv"), ("run",)),
    "bundle": ("exec",),
    "bun": ("x",),
    "cargo": ("make", "watch"),
    "cmake": ("-E", "-P"),
    "devbox": ("run", "shell"),
    "distrobox": ("enter",),
    "dune": ("exec",),
    "flatpak": ("run",),
    "gh": ("alias", "codespace", "extension"),
    "kubectl": ("exec", "run", "debug"),
    "limactl": ("shell",),
    "mix": ("cmd", "eval", "run"),
    "mvn": ("exec:exec", "exec:java"),
    "nix": ("develop", "run", "shell"),
    "npm": ("exec", "explore", "x"),
    "nvm": ("exec", "run"),
    "pixi": ("exec", "run"),
    "pnpm": ("exec", "dlx"),
    "sops": ("exec-env", "exec-file"),
    "tox": ("exec", "e"),
    "toolbox": ("run",),
    "vagrant": ("ssh",),
    "yarn": ("exec", "dlx"),
}
# Programs whose subcommand is followed by the program, unless an option comes first.
_DIRECT_SUBCOMMANDS = frozenset(
    {"bun", "bundle", "conda", "dune", "hatch", "mamba", "micromamba", "npm", "pdm", "pipenv", "pixi", "pnpm", "poetry",
     "pyenv", "rbenv", "rye", "uv", "yarn"}
)  # fmt: skip


@dataclass(slots=True)
class FoundCommands:
    """The simple commands found so far; `read_code` adds the commands in code of the shell, at a depth of nesting."""

    read_code: Callable[[str, FoundCommands, int], None]
    runs: list[tuple[str | None, ...]] = field(default_factory=list[tuple[str | None, ...]])
    is_complete: bool = True
    mentions: set[str | None] = field(default_factory=set[str | None])
    read: set[str | None] = field(default_factory=set[str | None])
    written: set[str | None] = field(default_factory=set[str | None])
    inner_chars: int = 0
    """The length of the code in arguments that has been read."""

    def add(self, words: Sequence[str | None], depth: int) -> None:
        """Add a simple command and the commands that it runs."""
        position, changed = 0, False
        while position < len(words) and (
            (word := words[position]) in _KEYWORDS or word == "function" or (word and ASSIGNMENT.match(word))
        ):
            changed |= self._note_assignment(word)
            is_named = word == "function" or (word == "coproc" and words[position + 2 : position + 3] == ["{"])
            position += 2 if is_named else 1
        words = words[position:]
        is_git = bool(words) and words[0] is not None and words[0].rpartition("/")[2] == "git"
        self.is_complete &= not changed or is_git
        if not words:
            return
        if changed and is_git:
            self.runs.append((words[0], None))  # it may be any command of git
        if len(self.runs) >= _MAX_RUNS or depth > MAX_DEPTH:
            self.is_complete = False
            return
        self.runs.append(tuple(words))
        if words[0] is None:
            self.is_complete = False
            return
        folder, _, program = words[0].rpartition("/")
        if "/" in words[0] and folder + "/" not in _SYSTEM_FOLDERS:
            self.is_complete = False  # of the project, for example a script or a link to a program
        self._add_inner(program, list(words[1:]), depth)

    def _note_assignment(self, word: str) -> bool:
        """Note an assignment that may change what any program does; return True if it is one for git alone."""
        changing = _CHANGING.match(word) is not None and _PROGRAM_VALUE.fullmatch(word) is None
        is_git = word.startswith("GIT_")
        self.is_complete &= not changing or is_git
        return changing and is_git

    def _add_inner(self, program: str, arguments: list[str | None], depth: int) -> None:
        self._note_code(program, arguments)
        self._note_mentions(program, arguments)
        if program in _SHELLS:
            self._add_shell(arguments, depth)
        elif program in _LAUNCHERS:
            self._add_launched(arguments, depth, is_direct=program in _DIRECT_LAUNCHERS)
        elif (subcommands := _LAUNCHING_SUBCOMMANDS.get(program)) is not None and (
            arguments[:1] == [None] or any(word in subcommands for word in arguments[:_MAX_EXECUTED])
        ):
            is_direct = arguments[0] in subcommands and program in _DIRECT_SUBCOMMANDS
            self._add_launched(arguments[1:], depth, is_direct=is_direct)
        elif program == "find":
            self._add_executed(arguments, depth)
        elif (wrapper := _WRAPPERS.get(program)) is not None:
            self._add_wrapped(wrapper, program, arguments, depth)
        elif program == "git":
            self._add_of_git(arguments, depth)
        elif (code_options := _CODE_OPTIONS.get(program)) is not None:
            self._add_code_options(*code_options, arguments, depth, takes_rest=program in ("fd", "fdfind"))
        elif (language := _LANGUAGE.fullmatch(program)) is not None and language[1] in _LANGUAGES:
            self._add_language(language[1], arguments, depth)

    def _note_mentions(self, program: str, arguments: list[str | None]) -> None:
        """Note the names in the arguments of a program that is not known."""
        if program in _PLAIN_PROGRAMS or program in _WRAPPERS or program in _SHELLS or can_only_read(program):
            return
        for word in arguments:
            self.mentions |= {None} if word is None else {*_NAME.findall(word)}

    def _note_code(self, program: str, arguments: list[str | None]) -> None:
        """Note a program that runs code in a language that is not read."""
        has_code = program in _OPAQUE or _SCRIPT.fullmatch(program) is not None
        match program:
            case "sed" | "gsed":
                self._note_sed(arguments)
            case "awk" | "gawk" | "mawk" | "nawk":
                has_code = any(word is None or _AWK_CODE.search(word) for word in arguments)
            case "cargo" | "go":
                has_code = any(word in ("run", "r", "generate", "tool") for word in arguments[:1])
            case "coverage":
                has_code = arguments[:1] == ["run"] and "-m" not in arguments
            case "tar" | "gtar":
                has_code = bool(arguments and arguments[0] and re.match("[^-]*[IF]", arguments[0]))
            case "printf":
                has_code = arguments[:1] in (["-v"], [None])
            case _ if program in _DECLARING:
                has_code = any(word is None or _CHANGING.match(word) for word in arguments)
            case _ if (options := _SQL_OPTIONS.get(program)) is not None:
                has_code = _may_run_from_sql(options, arguments)
            case _ if (code := _CODE_WORDS.get(program)) is not None:
                has_code = any(word is not None and code.match(word) for word in arguments)
            case _:
                pass
        self.is_complete &= not has_code

    def _add_language(self, language: str, arguments: list[str | None], depth: int) -> None:
        flags = r"-[BbdEIOqsSuvx]*"
        module = next((at for at, word in enumerate(arguments) if word is None or not re.fullmatch(flags, word)), None)
        if language in ("python", "pypy") and module is not None and re.fullmatch(flags + "m", arguments[module] or ""):
            self.is_complete &= arguments[module + 1 : module + 2] != [] and arguments[module + 1] in _MODULES
            self.add(arguments[module + 1 :], depth + 1)
        else:
            self.is_complete &= bool(arguments) and (
                all(word in _INFORMATION for word in arguments) or arguments[0] in _LANGUAGES[language]
            )

    def _add_of_git(self, arguments: list[str | None], depth: int) -> None:
        position = 0
        while position < len(arguments) and (word := arguments[position]) is not None and word.startswith("-"):
            following = arguments[position + 1] if position + 1 < len(arguments) else None
            is_setting = word == "-c" and following is not None and following.startswith(_HARMLESS_SETTINGS)
            if (word == "-c" and not is_setting) or word.startswith(("--config-env", "--exec-path=")):
                self.is_complete = False
            position += 2 if word in _GIT_VALUED else 1
        subcommand, rest = arguments[position : position + 1], arguments[position + 1 :]
        if any(word is not None and "ext::" in word for word in rest):
            self.is_complete = False
        name = subcommand[0] if subcommand and subcommand[0] is not None else ""
        if name == "bisect" and rest[:1] == ["run"]:
            self.add(rest[1:], depth + 1)
        elif name == "submodule" and "foreach" in rest:
            rest = [word for word in rest[rest.index("foreach") + 1 :] if word not in ("--recursive", "-q", "--quiet")]
            known = [word for word in rest if word is not None]
            self._add_code(" ".join(known) if len(known) == len(rest) else None, depth)
        elif name in ("filter-branch", "for-each-repo", "difftool", "mergetool"):
            self.is_complete = False
        elif name == "config":
            self.is_complete &= not any(word is None or _GIT_CONFIG.match(word) for word in rest)
        if (code_options := _CODE_OPTIONS.get(f"git {name}")) is not None:
            self._add_code_options(*code_options, rest, depth)

    def _add_code_options(
        self,
        letters: str,
        names: Sequence[str],
        arguments: Sequence[str | None],
        depth: int,
        *,
        takes_rest: bool = False,
    ) -> None:
        """Add the code that is the value of an option; with `takes_rest` all words after the option belong to it."""
        hits = 0
        for position, word in enumerate(arguments):
            following = arguments[position + 1] if position + 1 < len(arguments) else None
            if word is None:
                continue
            name, equals, value = word.partition("=")
            if word.startswith("-") and len(name) > 3 and any(one.startswith(name) for one in names):
                code = value.removeprefix("exec=") if equals else (following or "").removeprefix("exec=") or None
            elif letters and not word.startswith("--") and (letter := re.match(f"-\\w*?(?:{letters})", word)):
                code = word[letter.end() :] or following
                self.is_complete &= letter.end() == len(word)  # else it may be the value of another option
            else:
                continue
            hits += 1
            if code is None or hits > _MAX_EXECUTED:
                self.is_complete = False
            elif takes_rest:
                rest = arguments[position + (1 if code != following else 2) :]
                self.add([code, *(None if word is None or "{" in word else word for word in rest), None], depth + 1)
            elif re.search(r"\s", code):
                self._add_code(code, depth)
            else:
                self.add([code, None], depth + 1)  # with arguments that are not written

    def _note_sed(self, arguments: list[str | None]) -> None:
        """Note whether a script of sed may run a command."""
        scripts: list[str | None] = []
        operands: list[str | None] = []
        words = iter(arguments)
        for word in words:
            if word is None:
                self.is_complete = False
            elif word == "--":
                operands += words
            elif word.startswith("--expression="):
                scripts.append(word.partition("=")[2])
            elif word.startswith("--"):
                self.is_complete &= word.startswith(_SED_FLAGS)
            elif option := re.fullmatch(r"-[nErsuz]*(?:e(?P<script>.*)|i.*|l\d+)?", word, re.DOTALL):
                if option["script"] is not None:
                    scripts.append(option["script"] or next(words, None))
            elif word.startswith("-"):
                self.is_complete = False
            else:
                operands.append(word)
        for script in scripts or operands[: 2 if operands[:1] == [""] else 1]:
            self.is_complete &= script is not None and ("e" not in script or _SED_SCRIPT.fullmatch(script) is not None)

    def _add_shell(self, arguments: list[str | None], depth: int) -> None:
        for position, word in enumerate(arguments):
            if word is None or not word.startswith(("-", "+")):
                break
            if not word.startswith("--") and "c" in word:
                rest = [word for word in arguments[position + 1 :] if word is None or not word.startswith(("-", "+"))]
                self._add_code(rest[0] if rest else None, depth)
                return
        self.is_complete = False  # a script, or code from its input

    def _add_code(self, code: str | None, depth: int) -> None:
        self.inner_chars += len(code or "")
        if code is None or depth >= MAX_DEPTH or self.inner_chars > _MAX_INNER_CHARS:
            self.is_complete = False
        else:
            self.read_code(code, self, depth + 1)

    def _add_executed(self, arguments: list[str | None], depth: int) -> None:
        places = [place for place, word in enumerate(arguments) if word in ("-exec", "-execdir", "-ok", "-okdir")]
        self.is_complete &= len(places) <= _MAX_EXECUTED
        for place in places[:_MAX_EXECUTED]:
            inner = arguments[place + 1 :]
            ends = [end for end, one in enumerate(inner) if one in (";", "+")]
            self.add(inner[: ends[0]] if ends else inner, depth + 1)

    def _add_launched(self, arguments: Sequence[str | None], depth: int, *, is_direct: bool) -> None:
        """Add the program that follows; after unknown options, each argument may be the program, or code."""
        first = arguments[1:2] if arguments[:1] == ["--"] else arguments[:1]
        if is_direct and first and first[0] is not None and not re.search(r"^-|\s", first[0]):
            self.add(arguments[1:] if arguments[0] == "--" else arguments, depth + 1)
            return
        self.is_complete = False
        for place, word in enumerate(arguments[:_MAX_EXECUTED]):
            inner = word if word is None or not word.startswith("-") else re.sub(r"^(?:--[^=\s]*=?|-\w*?c)", "", word)
            if inner and re.search(r"\s", inner):
                self._add_code(inner, depth + MAX_DEPTH // 2)
            elif inner and inner == word:
                self.add(arguments[place : place + _MAX_GUESSED], depth + MAX_DEPTH // 2)

    def _add_wrapped(self, wrapper: _Wrapper, program: str, arguments: list[str | None], depth: int) -> None:
        rest, options = self._split_options(wrapper, arguments)
        if program == "command" and ("v" in options or "V" in options):
            return
        if wrapper.adds_arguments:
            replaced = [options.get("I"), *("{}" for option in ("i", "--replace") if option in options)]
            if program == "parallel" or options.get("i") or options.get("--replace"):
                self.is_complete = False
            rest = [None if word and any(one and one in word for one in replaced) else word for word in rest]
            rest += [None] if rest and program == "xargs" else []
        operands, inner = rest[: wrapper.operands], rest[wrapper.operands :]
        code = options.get("S", options.get("--split-string"))
        if program == "env" and ("S" in options or "--split-string" in options):
            known = ["env", code, *(None if word is None else shlex.quote(word) for word in rest)]
            is_known = None not in known and "\\" not in (code or "")
            self._add_code(" ".join(filter(None, known)) if is_known else None, depth)
        elif program == "flock" and operands and inner[:1] in (["-c"], ["--command"]):
            self._add_code(inner[1] if len(inner) > 1 else None, depth)
        elif wrapper.is_code and inner:
            known = [word for word in inner if word is not None]
            self._add_code(" ".join(known) if len(known) == len(inner) else None, depth)
            self.is_complete &= program != "ssh" or ("o" not in options and "F" not in options)
            if program == "ssh" and inner[0] is not None and inner[0].startswith("-"):
                self._add_launched(inner, depth, is_direct=False)
        else:
            self.is_complete &= program != "ssh"  # it reads code from its input
            self.add(["GIT_="] * (options.get("GIT_") is not None) + inner, depth + 1)

    def _split_options(
        self, wrapper: _Wrapper, arguments: Sequence[str | None]
    ) -> tuple[list[str | None], dict[str, str | None]]:
        """Return the arguments of a wrapper after its options and assignments, and its options with their values."""
        options: dict[str, str | None] = {}
        position = 0
        while position < len(arguments):
            word = arguments[position]
            if word is None:
                self.is_complete = False
                return [], options
            following = arguments[position + 1] if position + 1 < len(arguments) else None
            position += 1
            if word == "--":
                break
            if word.startswith("--"):
                name, equals, value = word.partition("=")
                long = [option for option in wrapper.long_valued if option.startswith(name)]
                self.is_complete &= bool(long) or any(option.startswith(name) for option in _LONG_FLAGS)
                options[long[0] if long else name] = value if equals else following if long else None
                position += bool(long) and not equals
            elif word.startswith("-") and len(word) > 1:
                valued = re.search(f"[{wrapper.valued}{wrapper.attached}]", word) if wrapper.valued else None
                options |= dict.fromkeys(word[1:] if valued is None else word[1 : valued.start()])
                if valued is not None:
                    attached = word[valued.end() :]
                    is_next = not attached and valued[0] in wrapper.valued
                    options[valued[0]] = following if is_next else attached
                    position += is_next
            elif wrapper.takes_assignments and ASSIGNMENT.match(word):
                options["GIT_"] = "" if self._note_assignment(word) else options.get("GIT_")
            else:
                position -= 1
                break
        return list(arguments[position:]), options


def _may_run_from_sql(options: Sequence[str], arguments: Sequence[str | None]) -> bool:
    """Return whether a client of a database may run a program: one of its commands, or code from its input does so."""
    has_code = len(arguments) > 1 if not options else any(word in options for word in arguments)
    return not has_code or any(word is None or _SQL_CODE.search(word) for word in arguments)
