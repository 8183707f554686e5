"""Conversations at a terminal as the options of a command ask for them: the session, its model and its folder."""

from __future__ import annotations

import asyncio
import sys
from argparse import Namespace
from collections.abc import Generator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from agenticx.cli.client.base import SessionInfo, SessionOptions
from agenticx.cli.client.local import LocalClient
from agenticx.cli.client.remote import RETRY_LIMIT_SECONDS
from agenticx.cli.options import (
    configure_terminal_logging,
    enabled_tools,
    model_of,
    settings_for,
    workspace_of,
)
from agenticx.cli.terminal.connector import SessionConnector
from agenticx.cli.terminal.conversation import TerminalConversation, unlisted_hint
from agenticx.cli.terminal.event_text import Note
from agenticx.cli.terminal.output import Output, OutputLogHandler
from agenticx.cli.terminal.responders import (
    automatic_answer,
    can_prompt,
)
from agenticx.errors import SettingsError
from agenticx.llms.providers.addresses import allow_address, check_address, split_address, with_address
from agenticx.llms.providers.local_servers import fetch_model_names_at, read_model_names_at
from agenticx.llms.providers.resolve import is_offline, served_model_name
from agenticx.sessions.hub.session_fields import check_model_name
from agenticx.settings import Settings
from agenticx.threads import run_in_thread
from agenticx.tools.visible import visible_line

__all__ = ["open_conversation"]


@contextmanager
def open_conversation(
    arguments: Namespace, output: Output, *, restart_seconds: float = RETRY_LIMIT_SECONDS
) -> Generator[TerminalConversation]:
    """Yield the conversation that the options select, and close its client afterwards.

    A turn of a server that has ended waits `restart_seconds` for the next server to continue it.
    On a KeyboardInterrupt, a second termination signal, the client is not closed, so that the process exits at once.
    """
    with asyncio.Runner() as runner:
        conversation = runner.run(_open(arguments, output, runner, restart_seconds))
        try:
            yield conversation
        except KeyboardInterrupt:
            _drop_stop(runner)
            raise
        except BaseException:
            _close(runner, conversation)
            raise
        else:
            try:
                runner.run(conversation.note_stopped_subagents())
            finally:
                _close(runner, conversation)


def _drop_stop(runner: asyncio.Runner) -> None:
    """Have the loop take the stop that is left in it if a signal came while the work of `run` was ending.

    Otherwise the runner's last work, the end of the tasks that are left, would be stopped.
    """
    with suppress(RuntimeError):  # it was stopped
        runner.get_loop().run_until_complete(asyncio.sleep(0))


def _close(runner: asyncio.Runner, conversation: TerminalConversation) -> None:
    with suppress(KeyboardInterrupt):
        runner.run(conversation.close_after_turns_of_others())
    runner.run(conversation.aclose())


async def _open(
    arguments: Namespace, output: Output, runner: asyncio.Runner, restart_seconds: float
) -> TerminalConversation:
    workspace = workspace_of(arguments)
    settings = settings_for(arguments, workspace)
    log = OutputLogHandler(output) if sys.stderr.isatty() else None
    configure_terminal_logging(settings, log)
    enabled_tools(settings)  # raises for a name that no tool has
    answer = automatic_answer(yes=arguments.yes)
    options = SessionOptions(
        workspace=str(workspace),
        permission_mode=settings.permission_mode,
        model=None if arguments.session is not None else await _requested_model(arguments, settings, output),
        tools=settings.enabled_tools if arguments.agent is None else None,  # else the agent has its own
        team=arguments.team,
        agent=arguments.agent,
    )
    connector = SessionConnector(settings, arguments, output, automatic=answer, restart_seconds=restart_seconds)
    client, session = await connector.open()
    conversation = TerminalConversation(
        runner,
        client,
        output,
        settings.home,
        await connector.options_for(client, options, is_next=session is None),
        connector,
        automatic_answer=answer,
        hold_log=nullcontext if log is None else log.hold,
        may_fall_back=isinstance(client, LocalClient),
        keeps_mode=can_prompt() or arguments.yes or arguments.permission_mode is not None,
    )
    if session is not None:
        await _resume(conversation, session, arguments, settings)
    return conversation


async def _requested_model(
    arguments: Namespace, settings: Settings, output: Output, *, own_model: str | None = None
) -> str | None:
    """Return the model of --model, at the address of --base-url; None without these.

    At an address it is the session's own model if none is named, else AGX_MODEL, else the first that the server lists.
    Raise `SettingsError` if that is none, and for an address of an offline model.
    """
    base_url: str | None = arguments.base_url
    name = model_of(arguments)
    if base_url is None:
        return name
    if arguments.agent is not None and name is None:
        raise SettingsError("--base-url with --agent needs the name of a model: add --model")
    check_address(base_url)
    is_listed = not (name or own_model or settings.model)
    name = name or own_model or settings.model or await _served_model(base_url, output)
    if is_offline(name):
        raise SettingsError(f"--base-url cannot be used with {name}, which is offline; name a model with --model")
    spec = with_address(served_model_name(name), base_url)
    try:
        check_model_name(spec)
    except ValueError as exc:
        raise SettingsError(f"--base-url {base_url[:100]!r}: {exc}") from exc
    allow_address(settings.home, base_url)
    if not is_listed:
        await _note_unlisted(split_address(spec)[0].partition(":")[2], base_url, output)
    return spec


async def _note_unlisted(model: str, base_url: str, output: Output) -> None:
    """Show a note if the server at that address has a list without the model: it may accept the name all the same."""
    served = await run_in_thread(fetch_model_names_at, base_url, name="agx models")
    if served and (hint := unlisted_hint(model, served)) is not None:
        output.show_note(Note(visible_line(f"{base_url} may have no model {model!r}: {hint}", 2_000), "warning"))


async def _served_model(base_url: str, output: Output) -> str:
    """Return the first model that the server at that address lists; raise `SettingsError` if there is none."""
    names = await run_in_thread(read_model_names_at, base_url, name="agx models")
    if not names:
        raise SettingsError(f"{base_url.rstrip('/')}/models lists no model for chats; name one with --model")
    others = f", the first of {len(names)}" if len(names) > 1 else ""
    output.show_note(Note(visible_line(f"model: openai-chat:{names[0]}{others} that {base_url} lists", 2_000)))
    return f"openai-chat:{names[0]}"


async def _resume(
    conversation: TerminalConversation, session: SessionInfo, arguments: Namespace, settings: Settings
) -> None:
    """Continue an existing session with the given options; raise SettingsError if --cwd names another folder."""
    folder, mode = Path(session.record.workspace), arguments.permission_mode
    if arguments.cwd is not None and arguments.cwd.resolve() != folder:
        raise SettingsError(
            f"--cwd {str(arguments.cwd)!r}: session {session.id} works in {str(folder)!r}; without --cwd it goes on "
            f"there, and `agx sessions move {session.id} FOLDER` moves it"
        )
    conversation.resume(session)
    own_model = session.record.model
    conversation.model = await _requested_model(arguments, settings, conversation.output, own_model=own_model)
    if Path.cwd() != folder and arguments.cwd is None:
        conversation.output.show_note(Note(visible_line(f"this session works in {folder}", 2_000)))
    if mode is not None and (mode == "auto" or mode != session.record.permission_mode):
        await conversation.change(permission_mode=mode)
