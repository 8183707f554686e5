"""The base of all models on a provider's server: sending, downgrading and reading replies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

from agenticx.errors import ModelError
from agenticx.llms.base import Delta, ModelRequest
from agenticx.llms.downgrades import Downgrade, find_downgrade
from agenticx.llms.file_refusals import data_at_path
from agenticx.llms.identifiers import IdentifierRule, ToolNames
from agenticx.llms.memory_estimate import history_size
from agenticx.llms.opening_policy import send_with_downgrades
from agenticx.llms.sampling import NO_SAMPLING, Sampling, SamplingField, check_sampling
from agenticx.llms.transport.http import ProviderHttp, ProviderResponse
from agenticx.llms.wires.reply_reader import ReplyParser, read_reply
from agenticx.llms.wires.sampling_rules import SamplingRules
from agenticx.logs import get_logger
from agenticx.threads import run_sized

__all__ = [
    "FIELD_REFUSED",
    "STREAMING_REFUSED",
    "PostRequest",
    "ProviderModel",
    "RequestMode",
    "with_dialect",
    "without_streaming",
]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostRequest:
    """One request for a reply: a JSON body that is posted to the base URL and `path`."""

    path: str
    body: bytes
    accept: str = "text/event-stream"
    query: Mapping[str, str] | None = None


Dialect = TypeVar("Dialect")


@dataclass(frozen=True, slots=True)
class RequestMode(Generic[Dialect]):
    """The form of the requests to a server: its dialect, and whether replies are streamed."""

    dialect: Dialect
    streaming: bool = True

    @property
    def accept(self) -> str:
        """The media type of the reply."""
        return "text/event-stream" if self.streaming else "application/json"


def with_dialect(**changes: Any) -> Callable[[RequestMode[Any]], RequestMode[Any]]:
    """Return a change of the request mode that sets these fields of its dialect."""
    return lambda mode: replace(mode, dialect=replace(mode.dialect, **changes))


def without_streaming(mode: RequestMode[Any]) -> RequestMode[Any]:
    """Return the same request mode without streaming."""
    return replace(mode, streaming=False)


def _has_state(request: ModelRequest) -> bool:
    return any(message.role == "assistant" and message.provider_state is not None for message in request.messages)


FIELD_REFUSED = "the server refuses a field; retrying without it"
STREAMING_REFUSED = "the server refuses to stream; requesting whole replies"


class ProviderModel(ABC, Generic[Dialect]):
    """A model that is called over `http`; a wire adds its requests, its parser and its downgrades.

    `model` is its name at the server, `name` its name for the user. Requests are made in `dialect` until the server
    refuses one and one of the `_downgrades` applies; the downgraded dialect is used from then on.
    """

    _tail_seconds: ClassVar[float | None] = None
    """Seconds to wait for the end of the body once the reply is complete; None: as for any other read."""

    _tool_name_rule: ClassVar[IdentifierRule]
    """The rule of the server for names of tools."""

    _downgrade_codes: ClassVar[frozenset[str]] = frozenset({"provider.bad_request"})
    """The codes of errors that may have been caused by the form of the request."""

    _downgrades: Sequence[Downgrade[RequestMode[Dialect]]] = ()

    def __init__(
        self, model: str, http: ProviderHttp, *, name: str, context_window: int | None, dialect: Dialect
    ) -> None:
        self._model = model
        self._http = http
        self.name = name
        self.context_window = context_window
        self._label = f"{name} at {http.host}"
        self._mode = RequestMode(dialect)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, host={self._http.host!r})"

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._http.aclose()

    def sampling_problems(self, sampling: Sampling) -> Mapping[SamplingField, str]:
        """Return the parameters that the wire does not have or take, each with a clause that says so."""
        return self._sampling_rules.problems(sampling)

    def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[Delta], None]:
        """Yield the deltas of the reply, one batch per socket read. Closing the iterator closes the socket."""
        names = ToolNames(self._tool_name_rule, request)
        mode = self._mode

        async def send() -> ProviderResponse:
            nonlocal mode
            response = await self._send(request, names)
            mode = self._mode
            return response

        return read_reply(
            send,
            lambda: self._parser(names.originals),
            label=self._label,
            redact=self._http.hide_secrets,
            try_downgrade=lambda error: not self._refuses_sampling(error, request) and self._try_downgrade(error, mode),
            tail_seconds=self._tail_seconds,
        )

    async def _send(self, request: ModelRequest, names: ToolNames) -> ProviderResponse:
        """Send the request, downgraded until the server accepts it; downgrades are kept for later requests.

        A refusal of the request's sampling is raised: its user asked for it, and nothing is left out of it.
        """
        if request.sampling is not NO_SAMPLING:
            check_sampling(self, request.sampling)
        replay_state = True
        refused: tuple[PostRequest, ModelError] | None = None

        async def send(_mode: RequestMode[Dialect]) -> ProviderResponse:
            nonlocal refused
            size = history_size(request.messages)
            post = await run_sized(self._build_request, request, names, replay_state, size=size, name="agx request")
            if refused is not None and refused[0] == post:  # the downgrade does not concern this request
                raise refused[1]
            try:
                return await self._post(post, request.timeout)
            except ModelError as error:
                refused = post, error
                text = f"{error.param or ''} {error}"
                error.named_files = await run_sized(data_at_path, post.body, text, size=size, name="agx request")
                raise

        def try_downgrade(mode: RequestMode[Dialect], error: ModelError) -> bool:
            nonlocal replay_state
            if replay_state and self._refuses_state(error) and _has_state(request):
                _log.warning("the server refuses its own earlier output; sending it as text", model=self.name)
                replay_state = False
                return True
            return not self._refuses_sampling(error, request) and self._try_downgrade(error, mode)

        return await send_with_downgrades(lambda: self._mode, send, try_downgrade)

    async def _post(self, post: PostRequest, timeout: float | None) -> ProviderResponse:
        return await self._http.post(post.path, post.body, accept=post.accept, query=post.query, timeout=timeout)

    def _refuses_sampling(self, error: ModelError, request: ModelRequest) -> bool:
        return bool(request.sampling) and self._sampling_rules.is_about(str(error), request.sampling)

    def _try_downgrade(self, error: ModelError, mode: RequestMode[Dialect]) -> bool:
        """Switch to the downgrade that the error calls for, from now on; return False if there is none."""
        downgrade = find_downgrade(mode, error, self._downgrades) if error.code in self._downgrade_codes else None
        if downgrade is None:
            return False
        before, self._mode = self._mode, downgrade.apply(self._mode)
        if self._mode != before:  # else a concurrent call has already made the same downgrade
            write = _log.info if self._mode.streaming == before.streaming else _log.warning
            write(downgrade.log_message, model=self.name, reason=str(error))
        return True

    # --- implemented by the wires

    @property
    @abstractmethod
    def _sampling_rules(self) -> SamplingRules:
        """The sampling that the wire can send, in its current dialect."""

    @abstractmethod
    def _build_request(self, request: ModelRequest, names: ToolNames, replay_state: bool) -> PostRequest:
        """Build the request; `replay_state` is false once the server refused its own earlier output."""

    @abstractmethod
    def _parser(self, original_names: Mapping[str, str]) -> ReplyParser:
        """Return a parser of a reply; `original_names` maps changed tool names to the original ones."""

    def _refuses_state(self, error: ModelError) -> bool:
        """Return whether the error means that the server does not accept its own earlier output any more."""
        return False
