"""The texts of others that a turn may act on: in conversations, results of child turns, and AGENTS.md files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agenticx.messages import UserMessage, sources_of
from agenticx.permissions.trusted_files import Instructions
from agenticx.runtime.session import Session

__all__ = ["TurnSources"]

_KEPT_SOURCES = 200


class TurnSources:
    """The names of the untrusted texts that a turn, its ancestors and its ended child turns have read.

    `instructions` are the AGENTS.md files in the turn's prompt. They count for its ancestors too, as those read
    its result.
    """

    def __init__(self, session: Session, parent: TurnSources | None, instructions: Instructions | None) -> None:
        self._session = session
        self._parent = parent
        self._child_sources: dict[str, None] = {}  # of ended child turns, until a call's result names them
        self._instructions: list[Instructions] = []
        if instructions is not None and instructions.digests:
            for sources in self._lineage():
                if instructions not in sources._instructions:
                    sources._instructions.append(instructions)

    def names(self) -> tuple[str, ...]:
        """Return the names of the untrusted texts that the turn may act on, each once, the newest of its own first.

        They are in its conversation, in its ancestors' (its task comes from there), and in the conversations of ended
        child turns (their results are in these conversations).
        """
        names: dict[str, None] = {}
        for sources in self._lineage():
            session = sources._session
            names |= dict.fromkeys(sources_of(reversed(session.messages)))
            names |= dict.fromkeys([*sources._child_sources, *session.state.sources])
        return tuple(names)

    @property
    def has_instructions(self) -> bool:
        """True if there are AGENTS.md files in the prompt of the turn, of an ancestor or of their child turns."""
        return bool(self._root._instructions)

    def untrusted_files(self) -> tuple[str, ...]:
        """Return the names of the AGENTS.md files whose content the user does not trust now, each once.

        They are in the prompts of this turn, its ancestors and their child turns: the conversations that it may act on
        were written under these instructions. Blocks.
        """
        files = [name for instructions in tuple(self._root._instructions) for name in instructions.untrusted()]
        return tuple(dict.fromkeys(files))

    def user_texts(self) -> list[str]:
        """Return the messages of the user in the root turn's conversation, without those that the engine adds."""
        users = (message for message in self._root._session.messages if isinstance(message, UserMessage))
        return [message.content for message in users if not message.injected and not message.sources]

    def take_child_sources(self) -> tuple[str, ...]:
        """Return the sources read by child turns that have ended since the last call of this method."""
        taken = tuple(self._child_sources)
        self._child_sources.clear()
        return taken

    def keep(self) -> None:
        """Keep the names in the session's state, because the to-do list or the scratchpad may quote the texts.

        A rewind of the conversation leaves both as they are, and a fork copies them.
        """
        self._keep(self.names())

    def report(self, *, detached: bool) -> None:
        """Report the foreign sources of the turn, which is about to end, to its parent.

        A root turn keeps those that no call's result has named in the session's state. A detached turn reports its
        sources with its ending.
        """
        if self._parent is None:
            self._keep(self._child_sources)
        elif not detached:
            session = self._session
            read = [*sources_of(session.messages), *self._child_sources, *session.state.sources]
            self._parent._child_sources |= dict.fromkeys(read)

    def _keep(self, names: Iterable[str]) -> None:
        state = self._session.state
        state.sources = [*dict.fromkeys([*state.sources, *names])][-_KEPT_SOURCES:]

    @property
    def _root(self) -> TurnSources:
        return self if self._parent is None else self._parent._root

    def _lineage(self) -> Iterator[TurnSources]:
        """Yield the sources of the turn and of its ancestors, the parent first."""
        sources: TurnSources | None = self
        while sources is not None:
            yield sources
            sources = sources._parent
