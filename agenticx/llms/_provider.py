"""What all models behind a provider's server share: who they are, the loop that asks, and how a reply is read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

from agenticx.errors import ModelError
from agenticx.llms._concessions import Concession, conceded
from agenticx.llms._http import Answer, ProviderHttp
from agenticx.llms._reading import ReplyParser, read_reply
from agenticx.llms._weight import sending_size
from agenticx.llms.base import Delta, ModelRequest
from agenticx.logs import get_logger
from agenticx.threads import run_sized

__all__ = [
    "WITHOUT_IT",
    "WITHOUT_STREAMING",
    "Call",
    "ProviderModel",
    "Way",
    "differently",
    "for_whole_replies",
]

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is posted for one reply: a body of JSON to `path` below the base URL."""

    path: str
    body: bytes
    accept: str = "text/event-stream"
    query: Mapping[str, str] | None = None


Dialect = TypeVar("Dialect")


@dataclass(frozen=True, slots=True)
class Way(Generic[Dialect]):
    """How a server is asked: by what it takes of what only some take, and for a stream or for whole replies."""

    dialect: Dialect
    streams: bool = True


def differently(**changes: Any) -> Callable[[Way[Any]], Way[Any]]:
    """What asks the same with these fields of the dialect changed."""
    return lambda way: replace(way, dialect=replace(way.dialect, **changes))


def for_whole_replies(way: Way[Any]) -> Way[Any]:
    """What asks the same without streaming."""
    return replace(way, streams=False)


WITHOUT_IT = "the server refuses a field; asking without it"
WITHOUT_STREAMING = "the server refuses to stream; asking for whole replies"


class ProviderModel(ABC, Generic[Dialect]):
    """A model that is asked over `http`; a wire adds what it posts, what it reads, and which refusals it can meet.

    `model` is what the server calls it, `name` what the person calls it. It is asked by `dialect` until a refusal calls
    for one of the `_concessions`, which holds from then on.
    """

    _tail_seconds: ClassVar[float | None] = None
    """How long the end of a body may lag behind a reply that is whole, None: as long as any other read."""

    _refusals: ClassVar[frozenset[str]] = frozenset({"provider.bad_request"})
    """The codes of errors that may mean only how it was asked."""

    _concessions: Sequence[Concession[Way[Dialect]]] = ()

    def __init__(
        self, model: str, http: ProviderHttp, *, name: str, context_window: int | None, dialect: Dialect
    ) -> None:
        self._model = model
        self._http = http
        self._name = name
        self._context_window = context_window
        self._way = Way(dialect)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, host={self._http.host!r})"

    @property
    def name(self) -> str:
        return self._name

    @property
    def context_window(self) -> int | None:
        return self._context_window

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._http.aclose()

    def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[Delta], None]:
        """The reply, read by read. Closing the iterator closes the socket."""
        return read_reply(
            lambda: self._ask(request),
            self._parser(request),
            who=f"{self._name} at {self._http.host}",
            told=self._http.hide_secrets,
            tail_seconds=self._tail_seconds,
        )

    async def _ask(self, request: ModelRequest) -> Answer:
        """Send the request, in the way this server takes it; what it refuses in general is remembered."""
        native = True
        while True:
            asked = self._way
            try:
                call = await run_sized(
                    self._call, request, native, size=sending_size(request.messages), name="agx request"
                )
                return await self._post(call, request.timeout)
            except ModelError as error:
                if native and self._refuses_state(error):
                    log.warning("the server refuses its own earlier output; sending it as text", model=self._name)
                    native = False
                elif not self._adapt(error, asked):
                    raise

    async def _post(self, call: Call, timeout: float | None) -> Answer:
        return await self._http.post(call.path, call.body, accept=call.accept, query=call.query, timeout=timeout)

    def _adapt(self, error: ModelError, asked: Way[Dialect]) -> bool:
        """Whether the server refused only the way it was asked, and there is another one, which is used from now on."""
        found = conceded(asked, error, self._concessions) if error.code in self._refusals else None
        if found is None:
            return False
        before, self._way = self._way, found.change(self._way)
        if self._way != before:  # else another call was refused the same just now
            tell = log.info if self._way.streams == before.streams else log.warning
            tell(found.said, model=self._name, reason=str(error))
        return True

    # --- what a wire says

    @abstractmethod
    def _call(self, request: ModelRequest, native: bool) -> Call:
        """What to post; not `native` once the server refused to have its own output back as it came."""

    @abstractmethod
    def _parser(self, request: ModelRequest) -> ReplyParser:
        """What reads the reply to that request."""

    def _refuses_state(self, error: ModelError) -> bool:
        """Whether the server does not know its own earlier output any more."""
        return False
