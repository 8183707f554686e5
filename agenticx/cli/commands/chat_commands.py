"""The messages and the slash commands of `agx chat`."""

from __future__ import annotations

import asyncio
import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast, get_args

from agenticx.cli.client.base import DEFAULT_OPTIONS, RewindReport, ServerLost, SessionInfo, TurnMode, TurnOptions
from agenticx.cli.client.session_lookup import find_session
from agenticx.cli.commands.message_input import PendingAttachments, describe_attachment, validate_prompt
from agenticx.cli.commands.rewinding import COMPACT, rewind_last_message, rewind_messages
from agenticx.cli.commands.session_changes import checked_name
from agenticx.cli.exit_codes import DONE, FAILED
from agenticx.cli.terminal.conversation import TerminalConversation
from agenticx.cli.terminal.event_text import Note, one_line, user_message_note
from agenticx.cli.terminal.log_summary import read_log_summary
from agenticx.cli.terminal.output import Output
from agenticx.cli.terminal.session_views import rewound_files, session_rows, show_last_turn
from agenticx.cli.terminal.turns import OutputFailed
from agenticx.cli.terminal.turns_elsewhere import TurnsElsewhere
from agenticx.cli.terminal.usage_report import usage_to_text
from agenticx.errors import AgenticXError, AttachmentRefused, SessionBusy, SessionNotFound, error_text
from agenticx.knowledge.registry import VaultRegistry
from agenticx.messages import MAIN_AGENT, UserMessage, clean_text
from agenticx.permissions.verdict import PermissionMode
from agenticx.similar_names import similar_name
from agenticx.teams.configured.files import TeamFiles
from agenticx.tools.command_output import HeadTailBuffer
from agenticx.tools.visible import visible, visible_line, visible_path
from agenticx.untrusted_text import MATERIAL, frame_text

__all__ = ["Chat"]

_MAX_LISTED = 10
_MAX_NUMBER_DIGITS = 6
_SHELL_BYTES = 15_000
"""The beginning and the end of a command's output that the model gets, each."""
_MAX_MODELS = 40

_BUSY = "a turn of another window runs in this session: /stop ends it, /open last shows it here"
_FORCED_MODE = re.compile(r"/(?:(?P<mode>vault|chat)\s+|agent\s+(?=\S+\s+\S))(?P<message>\S.*)", re.DOTALL)
"""A message whose mode the user chooses; `/agent` with one word chooses the agent of that name."""

_MODE_RANKS: Mapping[PermissionMode, int] = {"plan": 0, "default": 1, "accept_edits": 2, "auto": 3}
"""The modes by how much they allow without asking; piped input is not trusted to select a higher one."""


@dataclass(slots=True)
class Chat:
    """The chat's state and its slash commands; each command gets the rest of its line.

    `widest_mode` is the highest mode that `/mode` may select; None at a terminal. Only a user at a terminal may attach
    files, because attaching is not subject to the workspace's permission rules.
    """

    conversation: TerminalConversation
    output: Output
    widest_mode: PermissionMode | None = None
    last_code: int = field(default=DONE)
    attachments: PendingAttachments = field(default_factory=PendingAttachments)
    shell_runs: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The commands that the user ran with `!` since the last message, each with its output."""
    rewind_undo: tuple[str, str | None] | None = None
    """The session that was rewound last, and the target of `/rewind undo`; None after a message."""
    unsent: str = ""
    """The line that was not sent, for example since a turn of another window runs; the next prompt begins with it."""
    text_mentions: set[str] = field(default_factory=set[str])
    """The words behind an @ of which the user was told that they name no file."""
    wait_for_answer: Callable[[Coroutine[Any, Any, bool]], bool] | None = None
    """Runs a question to the user; None from a pipe."""

    def print_greeting(self, *, was_mode_given: bool) -> None:
        """Print model, team, folder and mode; how to continue a new session later, or the last turn of one."""
        conversation = self.conversation
        options = conversation.new_session_options
        if conversation.session is None and options.agent is not None:
            who = f"agent {visible_line(options.agent)}"
        else:
            who = conversation.run(conversation.client.resolve_model(conversation.model_name)).name
        mode = f", mode {conversation.permission_mode}" if conversation.permission_mode != "default" else ""
        if conversation.session is None:
            self._print(f"{who} in {options.workspace}{mode}; /help shows the commands")
            conversation.show_instructions()
            conversation.show_untrusted()
            if conversation.permission_mode == "auto":
                self._print_warning("in mode auto calls run without being asked about")
            if conversation.client.persistent:
                self._print("a new session; later, agx chat -c continues it")
        else:
            record = conversation.session.record
            team = "" if record.team is None else f", team {record.team}"
            agent = "" if record.agent_name is None else f", agent {visible_line(record.agent_name)}"
            self._print(f"{who}{team}{agent}{mode}; /help shows the commands")
            self._continue_session(ask=not was_mode_given)

    def print_resume_hint(self) -> None:
        """Print the command that continues this session."""
        session = self.conversation.session
        if session is not None and self.conversation.client.persistent:
            self._print(f"agx chat --session {session.id} continues this session")

    def handle_line(self, line: str) -> bool:
        """Process one line and return False if the chat should end; print an `AgenticXError` and continue."""
        typed = line
        try:
            self.conversation.run(self.conversation.ensure_connected())
            if (forced := _FORCED_MODE.fullmatch(line)) is not None:
                self._send(forced["message"], cast("TurnMode", forced["mode"] or "agent"))
                return True
            if line.startswith("/") and "\n" not in line:
                if not line.startswith("//"):
                    return self.run_command(line)
                line = line[1:]
            if line.startswith("!") and "\n" not in line and self.widest_mode is None:
                self._run_shell(line[1:].strip())
            elif line.strip():
                self._send(line)
        except OutputFailed:
            raise
        except (AttachmentRefused, SessionBusy) as exc:
            self.unsent = typed
            self._print_error(f"not sent: {exc}" if isinstance(exc, AttachmentRefused) else _BUSY)
        except SessionNotFound as exc:
            self._print_error(f"{exc}: it was deleted; /new starts another, /sessions lists the others")
        except AgenticXError as exc:
            self._print_error(str(exc))
            self._show_turn_again(exc)
        return True

    def _show_turn_again(self, error: AgenticXError) -> None:
        """At a terminal, show the turn of a lost server again if it waits for the user; its question is asked again."""
        if self.widest_mode is None and isinstance(error, ServerLost):
            with suppress(AgenticXError):  # the next message reports it
                self.conversation.run(self.conversation.show_turn_again())

    def _send(self, text: str, mode: TurnMode | None = None) -> None:
        """Run a turn, in this mode instead of the one that its words suggest if one is given.

        Without a vault of notes none is run in mode vault.
        """
        if mode == "vault" and not VaultRegistry(self.conversation.home).has_vaults():
            self.last_code, self.unsent = FAILED, f"/vault {text}"
            self._print_error("not sent: there is no vault of notes; `agx vault add PATH` adds one")
            return
        files, shell_runs = self.attachments.files, [*self.shell_runs]
        try:
            self._run_turn(self.build_message(text), TurnOptions(mode=mode))
        except SessionBusy:
            self.attachments.files, self.shell_runs = files, shell_runs
            raise

    def take_unsent(self) -> str:
        """Return the line that waits for the next prompt, "" for none, and forget it."""
        text, self.unsent = self.unsent, ""
        return text

    def _run_turn(self, message: UserMessage, options: TurnOptions = DEFAULT_OPTIONS) -> None:
        self.last_code, self.rewind_undo = FAILED, None
        if self.widest_mode is None and self.conversation.run(self.conversation.show_turns_elsewhere()):
            self.output.show_note(user_message_note(message.content))
        self.last_code = self.conversation.run_turn(message, options)

    def build_message(self, text: str) -> UserMessage:
        """Return the user message for `text`, with the files that are attached or mentioned in it as `@PATH`.

        The output of commands that the user ran since the last message follows the text.
        """
        if self.widest_mode is None:
            self._attach_mentioned(text)
        parts = [text, *(frame_text(f"output of `{command}`", output, MATERIAL) for command, output in self.shell_runs)]
        message = UserMessage(content=validate_prompt("\n\n".join(parts)), attachments=self.attachments.take())
        self.shell_runs.clear()
        return message

    def _attach_mentioned(self, text: str) -> None:
        """Attach the files that a message mentions, and print a line for each; raise `AttachmentRefused`."""
        folder, private = self.conversation.workspace, [self.conversation.home]
        report = self.attachments.add_mentioned(text, folder, private, self._allows_secret)
        for file in report.files:
            self._print(f"attached: {describe_attachment(file)}")
        for word in report.words:
            if word not in self.text_mentions:
                is_folder = (folder / word).is_dir()
                self._print(
                    f"@{word} is a folder: its name is sent, not its files"
                    if is_folder
                    else f"@{word} is no file here and stays text; /attach FILE sends one of another folder"
                )
        self.text_mentions.update(report.words)

    def _allows_secret(self, path: str) -> bool:
        """Ask the user whether to attach a file that usually holds keys or passwords."""
        if self.wait_for_answer is None:
            return False
        self._print_warning(f"{path} usually holds keys or passwords, which the model's provider would see")
        try:
            return self.wait_for_answer(self.conversation.ask_yes_or_no("Attach it?"))
        except KeyboardInterrupt:
            return False

    def _run_shell(self, command: str) -> None:
        """Run a command of the user in the folder of the session; the model reads its output with the next message."""
        if not command:
            self._print("!COMMAND runs a command of yours; the model gets its output with your next message")
            return
        try:
            code, output = self.conversation.run(_run_command(command, self.conversation.workspace, self._print))
        except KeyboardInterrupt:
            self._print_warning("the command was stopped")
            return
        if code:
            self._print_warning(f"exit code {code}")
        self.shell_runs.append((command, f"{output}\nexit code {code}"))

    def run_command(self, line: str) -> bool:
        """Run a slash command and return False if the chat should end."""
        word, _, rest = line[1:].partition(" ")
        if word in ("quit", "exit"):
            return False
        action = self._actions().get(word)
        if action is None:
            similar = similar_name(word, self._actions())
            hint = f"/help lists the commands, and //{word} … sends a message"
            self._print(f"unknown command /{word}; {f'did you mean /{similar}?' if similar else hint}")
        else:
            action(rest.strip())
        return True

    @property
    def command_names(self) -> Sequence[str]:
        """The names of the slash commands, in the order of /help."""
        return tuple(self._actions())

    def _actions(self) -> Mapping[str, Callable[[str], None]]:
        return {
            "help": self._help,
            "attach": self._attach,
            "detach": self._detach,
            "stop": self._stop,
            "mode": self._mode,
            "permissions": self._permissions,
            "tools": self._tools,
            "model": self._model,
            "agent": self._agent,
            "team": self._team,
            "vault": partial(self._explain_forced, "vault"),
            "chat": partial(self._explain_forced, "chat"),
            "rewind": self._rewind,
            "retry": self._retry,
            "compact": self._compact,
            "pick": self._pick,
            "sessions": self._sessions,
            "open": self._open,
            "new": self._new,
            "rename": self._rename,
            "usage": self._usage,
            "export": self._export,
            "quit": lambda _: None,
        }

    def _help(self, _: str) -> None:
        self._print(
            "/attach [FILE] show or add the files to send with your next message\n"
            "/detach        remove these files\n"
            "/mode [MODE]   show or change when you are asked\n"
            "/permissions   the rules that hold here, and those of this session; /permissions remove ID\n"
            "/model [M]     list the models, or change to one\n"
            "/agent [NAME]  show or choose the agent of the session; meta is the main one\n"
            "/team [NAME]   list the teams, or start a session with one with your next message\n"
            "/vault TEXT    a message that is answered from your notes, whatever its words are\n"
            "/chat TEXT     one that is answered from general knowledge\n"
            "/agent TEXT    one, of several words, that is work with tools\n"
            "/tools         what the agent can use\n"
            "/rewind [N]    take back your last message, or the last N, with the files as they were; /rewind undo\n"
            "/retry         take back your last message, with what it changed, and send it again\n"
            "/compact       replace earlier messages by a summary, so that the model reads less\n"
            "/pick N        go on with option N, of those that were made to choose from\n"
            "/sessions [Q]  the latest sessions, or those that match Q\n"
            "/open ID       continue another session\n"
            "/new           start a new session with your next message\n"
            "/rename NAME   name this session\n"
            "/usage         its tokens and cost\n"
            "/export [FILE] write it to a file, by default ID.md; with .jsonl all its events\n"
            "/stop          stop the running turn (Ctrl-C)\n"
            "/quit          exit (Ctrl-D)\n"
            "!COMMAND       run a command of yours here; the model gets its output with your next message\n"
            '@PATH          in a message: send that file with it; @"PATH" if it has blanks\n'
            "//text         a message of one line that begins with a slash"
        )

    def _attach(self, paths: str) -> None:
        if paths and self.widest_mode is not None:
            self._print_error("/attach is for a terminal; agx run --attach sends a file from a script")
            return
        try:
            if paths:
                self.attachments.add(paths)
        except AttachmentRefused as exc:
            self._print_error(f"not attached: {exc}")
            return
        self._print(self.attachments.describe())

    def _detach(self, _: str) -> None:
        removed = self.attachments.take()
        self._print("no file is attached any more" if removed else "no file was attached")

    def _stop(self, _: str) -> None:
        conversation, session = self.conversation, self.conversation.session
        if session is None or conversation.run(conversation.client.get(session.id)).running_turn_id is None:
            self._print("no turn is running; while one runs, Ctrl-C stops it")
            return
        conversation.run(conversation.client.stop(session.id))
        self._print("the turn of the other window stops")

    def _mode(self, word: str) -> None:
        if word:
            mode = next((mode for mode in get_args(PermissionMode) if mode == word), None)
            if mode is None:
                similar = similar_name(word, get_args(PermissionMode))
                hint = f"; did you mean {similar}?" if similar else ""
                self._print(f"unknown mode {word!r}; known modes: {', '.join(get_args(PermissionMode))}{hint}")
                return
            if self.widest_mode is not None and _MODE_RANKS[mode] > _MODE_RANKS[self.widest_mode]:
                self._print_error(
                    f"/mode {mode} allows more than this chat may; start it with --permission-mode {mode}"
                )
                return
            self.conversation.run(self.conversation.change(permission_mode=mode))
        self._print(f"permission mode: {self.conversation.permission_mode}")

    def _permissions(self, words: str) -> None:
        conversation = self.conversation
        action, _, rule_id = words.partition(" ")
        if words and (action != "remove" or not rule_id.strip()):
            self._print_error("/permissions lists the rules; /permissions remove ID removes one")
            return
        if words:
            removed = conversation.run(conversation.client.remove_rule(rule_id.strip()))
            self._print(f"removed: {visible_line(str(removed))}")
            return
        rules = conversation.run(conversation.rules())
        for rule in rules:
            place = {"session": "this session", "workspace": "here", "user": "everywhere"}[rule.scope]
            self._print(f"{rule.id}  {visible_line(str(rule))}  ({place})")
        if not rules:
            self._print(
                "no rules hold here; the answers s and a to a question store some, see `agx permissions --help`"
            )

    def _tools(self, _: str) -> None:
        tools = dict(self.conversation.run(self.conversation.client.tools()))
        for name in self.conversation.tools or tools:
            if name in tools:
                self._print(f"{name:<18} {tools[name].strip().partition(chr(10))[0]}")

    def _model(self, spec: str) -> None:
        conversation = self.conversation
        if spec:
            spec = conversation.full_model_name(spec)
            conversation.run(conversation.check_model(spec))
            conversation.run(conversation.change(model=spec))
            conversation.model = None
        current = conversation.run(conversation.client.resolve_model(conversation.model_name)).name
        self._print(f"model: {current}")
        if not spec:
            names = conversation.run(conversation.models())
            for name in names[:_MAX_MODELS]:
                self._print(f"{'*' if name == current else ' '} {visible_line(name)}")
            if len(names) > _MAX_MODELS:
                self._print(f"… and {len(names) - _MAX_MODELS} more: `agx models` lists them; Tab completes a name")

    def _agent(self, name: str) -> None:
        conversation, session = self.conversation, self.conversation.session
        if session is None:
            self._print("/agent is for a session; your next message starts one")
            return
        if name:
            conversation.run(conversation.change(agent=None if name == MAIN_AGENT else name))
        active = conversation.run(conversation.client.get(session.id)).record.agent_name
        self._print(f"agent: {visible_line(active or MAIN_AGENT)}")

    def _team(self, name: str) -> None:
        conversation, files = self.conversation, TeamFiles(self.conversation.home)
        if name:
            files.read(name)
            conversation.session = None
            conversation.new_session_options = replace(conversation.new_session_options, team=name)
            self._print(f"your next message starts a session with the team {name}")
        else:
            self._print(f"teams: {', '.join(files.names())}")

    def _explain_forced(self, mode: str, _: str) -> None:
        self._print(f"/{mode} TEXT sends the message TEXT in mode {mode}")

    def _rewind(self, word: str) -> None:
        conversation, session = self.conversation, self.conversation.session
        if session is None:
            self._print("there is no message to take back; your next one starts a session")
            return
        if word == "undo":
            self._undo_rewind(session)
            return
        if word and not (word.isascii() and word.isdigit() and len(word) < _MAX_NUMBER_DIGITS):
            self._print_error(f"/rewind {word[:_MAX_LISTED]!r}: a number of messages to take back, or undo")
            return
        taken, report = conversation.run(rewind_messages(conversation.client, session, int(word or "1")))
        self.rewind_undo = session.id, report.undo
        for text in taken:
            self._print(f"taken back: {one_line(text)}")
        self._print_rewound_files(report)

    def _retry(self, _: str) -> None:
        conversation, session = self.conversation, self.conversation.session
        if session is None:
            self._print("there is no message to send again; your next one starts a session")
            return
        message, report = conversation.run(rewind_last_message(conversation.client, session))
        self._print_rewound_files(report)
        self.output.show_note(user_message_note(message.content))
        if message.attachments:
            self._print(f"attached: {', '.join(file.name for file in message.attachments)}")
        self._run_turn(message)

    def _compact(self, _: str) -> None:
        if self.conversation.session is None:
            self._print("there is nothing to compact; your next message starts a session")
            return
        self._run_turn(UserMessage(content=COMPACT), TurnOptions(compact=True))

    def _rename(self, name: str) -> None:
        session = self.conversation.session
        if session is None or not name:
            self._print("/rename NAME names this session" if session else "your next message starts a session")
            return
        self.conversation.run(self.conversation.change(name=checked_name(name)))
        self._print(f"name: {visible_line(name)}")

    def _usage(self, _: str) -> None:
        session = self.conversation.session
        if session is None:
            self._print("no model was called yet")
            return
        self._print(usage_to_text(self.conversation.run(self.conversation.client.usage(session_id=session.id))))

    def _export(self, path: str) -> None:
        session = self.conversation.session
        if session is None or self.widest_mode is not None:
            self._print(
                "/export is for a terminal; `agx sessions export` is for scripts"
                if session
                else "there is no session yet"
            )
            return
        file = Path(path).expanduser() if path else Path(f"{session.id}.md")
        try:
            size = self.conversation.run(self._write_export(session.id, file))
        except OSError as exc:
            self._print_error(f"/export {str(file)!r}: {error_text(exc)}")
            return
        self._print(f"{visible_path(str(file))}  {size} bytes")

    async def _write_export(self, session_id: str, file: Path) -> int:
        """Write a new file with the session and return its size; raise OSError, also for a file that exists."""
        form: Literal["jsonl", "markdown"] = "jsonl" if file.suffix == ".jsonl" else "markdown"
        async with self.conversation.client.export(session_id, form) as chunks:
            content = b"".join([chunk async for chunk in chunks])
        with open(file, "xb") as stream:  # noqa: ASYNC230 - a local file
            return stream.write(content)

    def _pick(self, word: str) -> None:
        conversation, session = self.conversation, self.conversation.session
        if session is None:
            self._print("there is no option to pick; your next message starts a session")
            return
        if not (word.isascii() and word.isdigit() and len(word) < _MAX_NUMBER_DIGITS):
            self._print_error(f"/pick {word[:_MAX_LISTED]!r}: the number of an option")
            return
        conversation.run(conversation.client.pick(session.id, int(word)))
        self.rewind_undo = None
        self._print(f"your next message goes on with option {int(word)}")

    def _undo_rewind(self, session: SessionInfo) -> None:
        if self.rewind_undo is None or self.rewind_undo[0] != session.id:
            self._print("nothing was taken back since your last message")
            return
        report = self.conversation.run(self.conversation.client.rewind(*self.rewind_undo))
        self.rewind_undo = None
        self._print("the messages are back")
        self._print_rewound_files(report)

    def _print_rewound_files(self, report: RewindReport) -> None:
        files = "; ".join(rewound_files(report.files))
        self._print(f"files: {files}" if files else "no file was changed")

    def _sessions(self, query: str) -> None:
        query = clean_text(query)  # a terminal may send bytes that are not text
        sessions = self.conversation.run(self.conversation.client.list_sessions(query=query or None, limit=_MAX_LISTED))
        for line in session_rows(sessions):
            self._print(line)
        if not sessions:
            self._print("no session matches" if query else "there is no session yet")

    def _open(self, reference: str) -> None:
        conversation = self.conversation
        if not reference:
            self._print("/open ID continues a session; /sessions lists them")
            return
        session = conversation.run(find_session(conversation.client, reference, conversation.home))
        if self.widest_mode is not None and _MODE_RANKS[session.record.permission_mode] > _MODE_RANKS[self.widest_mode]:
            self._print_error(
                f"/open {session.id} refused: its mode {session.record.permission_mode} allows more than this chat may"
            )
            return
        conversation.resume(session)
        self._continue_session(ask=True)

    def _new(self, _: str) -> None:
        conversation = self.conversation
        conversation.session = None
        conversation.new_session_options = replace(conversation.new_session_options, team=None)
        self._print("your next message starts a new session")

    def _continue_session(self, *, ask: bool) -> None:
        """Show an existing session; first, if it is in mode auto, ask whether to go on in that mode."""
        conversation = self.conversation
        if ask and conversation.turn_mode == "auto" and self.wait_for_answer is not None:
            self._print_warning("this session is in mode auto, in which calls run without being asked about")
            is_agreed = self.wait_for_answer(conversation.ask_yes_or_no("Go on in mode auto?"))
            conversation.run(conversation.change(permission_mode="auto" if is_agreed else "default"))
            if not is_agreed:
                self._print("permission mode: default")
        self._show_last_turn()

    def _show_last_turn(self) -> None:
        """Show the session's last turn; follow one that still runs, and answer its requests."""
        conversation, session = self.conversation, self.conversation.session
        assert session is not None
        self._print(f"{session.id} {session.record.name or ''} in {session.record.workspace}")
        conversation.show_instructions()
        conversation.show_untrusted()
        position = conversation.run(conversation.client.running_turn(session.id)) if self.widest_mode is None else None
        if position is None:
            last_seq = conversation.run(show_last_turn(conversation.client, session, self.output))
        else:
            last_seq = conversation.run(read_log_summary(conversation.client, session.id)).last_seq
            self.last_code = conversation.follow_turn(position)
        conversation.turns_elsewhere = TurnsElsewhere(session.id, last_seq)

    def _print(self, text: str) -> None:
        self.output.show_note(Note(visible(text)))

    def _print_warning(self, text: str) -> None:
        self.output.show_note(Note(visible(text), "warning"))

    def _print_error(self, text: str) -> None:
        self.output.show_note(Note(visible(text), "bad"))


async def _run_command(command: str, folder: Path, show: Callable[[str], None]) -> tuple[int, str]:
    """Run a shell command without input, show its lines as they come, and return its exit code and output.

    Of a long output the middle is left out. Cancelling the call ends the command.
    """
    process = await asyncio.create_subprocess_shell(
        command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    output, decoder, line = HeadTailBuffer(_SHELL_BYTES, _SHELL_BYTES), getincrementaldecoder("utf-8")("replace"), ""
    try:
        while chunk := await process.stdout.read(_SHELL_BYTES):
            output.add(chunk)
            whole, newline, line = (line + decoder.decode(chunk)).rpartition("\n")
            if newline or len(line) > _SHELL_BYTES:
                show(whole if newline else line)
                line = line if newline else ""
        code = await process.wait()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.kill()
        raise
    if line:
        show(line)
    return code, output.text()
