"""Requests to the user: asked at a gate under a time limit, or continued after a restart, with their events.

All kinds of requests are asked, limited, answered and continued in the same way; see `RequestKind` for how they differ.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from traceback import extract_tb
from typing import Any, Generic, Self

from agenticx import user_code
from agenticx.errors import AgenticXError, UserCodeError
from agenticx.logs import get_logger
from agenticx.runtime.calls.concurrency import Slot
from agenticx.runtime.calls.validation import CallRefused
from agenticx.runtime.events import EventType
from agenticx.runtime.interrupts import cancel_and_wait
from agenticx.runtime.resume import ResumedRequest
from agenticx.runtime.turn import Turn
from agenticx.runtime.user_requests.kinds import AnswerT, RequestKind, RequestT, kind_of
from agenticx.runtime.user_requests.requests import AnsweredBy

__all__ = ["Asker", "OpenRequest", "close_resumed"]

_SHORTEST_SECONDS = 0.001
_GATE = "the confirm gate"

_log = get_logger(__name__)


class Asker:
    """The requests to the user on behalf of one call, or of a turn's work: the first may continue an earlier one.

    `earlier` is the request that an earlier process asked, None if there is none. The caller does not need to know of
    it: `open` continues it instead of asking anew, and `settle` closes it if nobody is to be asked any more. Clients
    show it already, so an asker, which is a context manager, puts it to the gate again at once, and it can be answered
    while its call is assessed again. The exit closes a request that is still open.

    While the user is asked, the caller releases the call's `slot`.
    """

    def __init__(self, turn: Turn, slot: Slot, earlier: ResumedRequest | None) -> None:
        self.slot = slot
        self._turn = turn
        self._resumed = earlier
        self._earlier: OpenRequest[Any] | None = None
        self._last: OpenRequest[Any] | None = None

    async def __aenter__(self) -> Self:
        if self._resumed is None:
            return self
        self.slot.mark_asked()  # before the restart
        self._earlier = self._last = _continued(self._turn, self.slot, self._resumed)
        try:
            await asyncio.sleep(0)  # a task that is cancelled before it begins does not close its request
        except asyncio.CancelledError:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    @property
    def is_answered(self) -> bool:
        """True if the earlier request has an answer, which `open` returns without waiting."""
        return self._earlier is not None and self._earlier.is_answered

    async def open(self, kind: RequestKind[RequestT, AnswerT], request: RequestT) -> OpenRequest[AnswerT]:
        """Ask a request, or continue the earlier one that asks the same.

        Raises `CallRefused` if the earlier one asks something else.
        """
        if (opened := await self._take_earlier(kind)) is None:
            data = kind.request_data(request)
            announce = _Announcement(self.slot, lambda: self._turn.emit(kind.asked, data))
            opened = self._last = _PendingRequest(self._turn, kind, request, announce)
        elif opened.digest != request.digest:
            reason = "the effect of the call changed while the program was down"
            await opened.end(kind.no_answer("restart", reason))
            raise CallRefused(f"Denied: {reason}.", "denied")
        return opened

    async def settle(self, kind: RequestKind[Any, AnswerT], answer: AnswerT) -> AnswerT:
        """Close the earlier request, if there is one, without asking further; return the answer that counts.

        That is `answer`, or the answer of a user who was faster. Raises `CallRefused` if the earlier request is of
        another kind.
        """
        earlier = await self._take_earlier(kind)
        return answer if earlier is None else await earlier.close(answer)

    async def _end(self) -> None:
        if self._last is not None:
            await self._last.end()
        if self._resumed is not None:
            self._resumed.asked.set()

    async def _take_earlier(self, kind: RequestKind[Any, AnswerT]) -> OpenRequest[AnswerT] | None:
        """Return the earlier request the first time, then None; raise `CallRefused` if it is of another kind."""
        if self._resumed is None or (earlier := self._earlier) is None:
            return None
        self._earlier = None
        if (earlier_kind := kind_of(self._resumed.request)) is not kind:
            await earlier.end(earlier_kind.no_answer("restart"))
            raise CallRefused("Denied: the tool of the call was replaced while the program was down.", "denied")
        return earlier


def close_resumed(turn: Turn, by: AnsweredBy = "stop", call_id: str | None = None) -> None:
    """Close the earlier requests of a resumed turn for which no asker was made: all, or that of the call `call_id`."""
    for id_ in list(turn.resumed_requests) if call_id is None else [call_id]:
        if (resumed := turn.resumed_requests.pop(id_, None)) is None:
            continue
        if not resumed.is_response_logged:
            kind = kind_of(resumed.request)
            _emit_answer(turn, kind, resumed.request.id, resumed.answer or kind.no_answer(by))
        resumed.asked.set()


# --- open requests ----------------------------------------------------------------------------------------------------


class OpenRequest(ABC, Generic[AnswerT]):
    """A request to the user whose event with the answer is still to come.

    `digest` is that of the request. `final_answer` is the answer in that event, also for a caller that was cancelled;
    before the event it is the answer that the request gets if it is ended now.
    """

    digest: str
    final_answer: AnswerT

    @property
    @abstractmethod
    def is_answered(self) -> bool:
        """True if there is nothing to wait for."""

    @abstractmethod
    async def answer(self) -> AnswerT:
        """Wait for the answer and return it."""

    @abstractmethod
    async def close(self, answer: AnswerT) -> AnswerT:
        """Close the request with `answer`, unless the gate has got one, and return the final answer."""

    async def end(self, answer: AnswerT | None = None) -> None:
        """Close the request, if that is still to be done, with `answer` or else with the `final_answer` so far."""
        await self.close(self.final_answer if answer is None else answer)


class _PendingRequest(OpenRequest[AnswerT], Generic[RequestT, AnswerT]):
    """A request at a gate, asked in a task.

    `announce` emits the event with the request. `first_asked_at` is the time at which an earlier process asked it.
    """

    def __init__(
        self,
        turn: Turn,
        kind: RequestKind[RequestT, AnswerT],
        request: RequestT,
        announce: Callable[[], None],
        first_asked_at: datetime | None = None,
    ) -> None:
        self.digest = request.digest
        self.final_answer = kind.no_answer("stop")
        self._turn = turn
        self._request = request
        self._kind = kind
        self._gate = turn.permissions.gate_for(request)
        self._announce = announce
        since = 0.0 if first_asked_at is None else max((turn.clock.now() - first_asked_at).total_seconds(), 0.0)
        self._asked_at = turn.clock.monotonic() - since
        self._task = asyncio.create_task(self._ask())

    @property
    def is_answered(self) -> bool:
        return self._task.done()

    async def answer(self) -> AnswerT:
        return await self._task

    async def close(self, answer: AnswerT) -> AnswerT:
        if not self._task.done():
            self.final_answer = answer
        await cancel_and_wait(self._task)
        return self.final_answer

    async def _ask(self) -> AnswerT:
        """Ask the gate and emit the events, also if the gate fails or the task is cancelled."""
        turn, kind, request = self._turn, self._kind, self._request
        limit = max((request.expires_at - turn.clock.now()).total_seconds(), _SHORTEST_SECONDS)
        answer: AnswerT | None = None
        try:
            with turn.work_clock.waiting_for_person():
                ask, real_limit = kind.ask_method(self._gate), turn.clock.real(limit)
                answer = await user_code.call(ask, request, self._announce, what=_GATE, limit=real_limit)
            if (problem := kind.problem(answer)) is not None:
                answer, text = None, f"the gate {type(self._gate).__name__} returned {problem}"
                raise UserCodeError(text, what=_GATE, kind="invalid_result")
        except AgenticXError as exc:
            if not isinstance(exc, UserCodeError) or (exc.kind, exc.what) != ("timed_out", _GATE):
                self._log_failed_gate(exc)
                answer = kind.no_answer("policy", str(exc))
            elif (answer := self._decision()) is None:
                answer = kind.no_answer("timeout")
                self._report_timeout()
        finally:
            answer = self.final_answer = answer or self._decision() or self.final_answer
            self._announce()
            _emit_answer(turn, kind, request.id, answer)
        return answer

    def _decision(self) -> AnswerT | None:
        """Return the answer that the gate got while it was cancelled."""
        try:
            answer: Any = user_code.call_sync(self._kind.decided, self._gate, self._request.id, what=_GATE)
        except AgenticXError as exc:
            self._log_failed_gate(exc)
            return None
        return None if self._kind.problem(answer) is not None else answer

    def _log_failed_gate(self, failure: AgenticXError) -> None:
        """Log that a gate gave no answer, with the place if its own code raised, and at debug the traceback."""
        more: dict[str, Any] = {}
        if isinstance(failure, UserCodeError) and failure.kind == "raised" and failure.__cause__ is not None:
            frame = extract_tb(failure.__cause__.__traceback__)[-1]
            more["place"] = f"{frame.filename}:{frame.lineno}"
            if _log.is_enabled("debug"):
                more["exc_info"] = failure
        effect, fields = self._kind.without_answer, self._kind.call_fields(self._request)
        _log.error(f"the confirm gate failed; {effect}", **fields, reason=str(failure), **more)

    def _report_timeout(self) -> None:
        if (phase := self._kind.stall_phase) is None:
            return
        elapsed = round(self._turn.clock.monotonic() - self._asked_at, 3)
        limit = self._kind.timeout_seconds(self._turn.settings)
        data = {"phase": phase, "elapsed_seconds": elapsed, "limit_seconds": limit, "action": "failed"}
        self._turn.emit(EventType.STALL, data)


class _AnsweredRequest(OpenRequest[AnswerT]):
    """A request that was answered before the restart; the log may have the event with the answer already."""

    def __init__(self, turn: Turn, resumed: ResumedRequest, answer: AnswerT) -> None:
        self.digest = resumed.request.digest
        self.final_answer = answer
        self._turn = turn
        self._request_id = resumed.request.id
        self._is_logged = resumed.is_response_logged

    @property
    def is_answered(self) -> bool:
        return True

    async def answer(self) -> AnswerT:
        return await self.close(self.final_answer)

    async def close(self, answer: AnswerT) -> AnswerT:
        self.final_answer = answer
        if not self._is_logged:
            self._is_logged = True
            _emit_answer(self._turn, kind_of(answer), self._request_id, answer)
        return answer


def _continued(turn: Turn, slot: Slot, resumed: ResumedRequest) -> OpenRequest[Any]:
    """Return a request that an earlier process asked; without an answer it is asked again."""
    if resumed.answer is not None:
        return _AnsweredRequest(turn, resumed, resumed.answer)
    announce = _Announcement(slot, resumed.asked.set)
    return _PendingRequest(turn, kind_of(resumed.request), resumed.request, announce, resumed.asked_at)


def _emit_answer(turn: Turn, kind: RequestKind[Any, AnswerT], request_id: str, answer: AnswerT) -> None:
    turn.emit(kind.answered, {"id": request_id, **kind.answer_data(answer)})


class _Announcement:
    """A callback that runs `emit` once, however often a gate calls it."""

    def __init__(self, slot: Slot, emit: Callable[[], None]) -> None:
        self._slot = slot
        self._emit = emit
        self._done = False

    def __call__(self) -> None:
        self._slot.mark_asked()
        if not self._done:
            self._done = True
            self._emit()
