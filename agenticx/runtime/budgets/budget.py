"""Budgets in a tree, and the reservations of model calls.

Before a model call is made, it reserves the most that it may use at its budget and all ancestors of that; what the
provider reports settles the reservation. So agents that work at the same time cannot exceed a budget together.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from agenticx.argument_types import check_int, check_number, check_type, wrong_type
from agenticx.call_errors import explain_calls
from agenticx.clocks import Clock
from agenticx.errors import ModelError
from agenticx.llms.base import ChatModel, Usage, largest_cost, output_limit
from agenticx.settings import Settings

__all__ = ["Budget", "BudgetExceeded", "Reservation", "Spent", "checked_budget", "settings_budget"]

_DEFAULT_OUTPUT_TOKENS = 32_768
"""Reserved for the reply of a model with an unknown limit."""

_LEAST_OUTPUT_TOKENS = 256
"""A call with fewer output tokens left is not made."""

_MANY = 1_000_000

_lock = threading.Lock()
"""Held while amounts change: a call changes several budgets, and other threads may use some of them."""


class BudgetExceeded(ModelError):
    """Raised when a budget has too little left for a model call; its code is `budget_exceeded`."""


@dataclass(frozen=True, slots=True)
class Spent:
    """The tokens, US dollars and nominal seconds used of a budget; running calls count as reserved."""

    tokens: int = 0
    cost_usd: Decimal = Decimal(0)
    seconds: float = 0.0


@explain_calls
class Budget:
    """A limit on the tokens, the cost and the time of an agent, and of all agents that have a `child` of it.

    `tokens` counts input and output, `cost_usd` US dollars at the prices of the models' catalogue. If the cost is
    limited, calls of unknown price are refused. `seconds` is the time during which at least one of the agents is at
    work; waiting for a person does not count. None is no limit. May be used from several threads.

    A turn that has nothing left ends with the error `budget_exceeded`. The input of a call is estimated before it is
    made, so the last calls may exceed the tokens by the error of the estimate, and so may a model that does not take
    `max_output_tokens`; no call is made after that. The reply of a call may take at most half of what is left.

    Raises `TypeError` and `ValueError` for limits that are no numbers above 0.
    """

    def __init__(
        self, tokens: int | None = None, cost_usd: Decimal | float | str | None = None, seconds: float | None = None
    ) -> None:
        if tokens is not None:
            check_int("tokens", tokens)
        self.tokens = tokens
        self.cost_usd = None if cost_usd is None else _dollars(cost_usd)
        self.seconds = None if seconds is None else _seconds(seconds)
        for name in ("tokens", "cost_usd", "seconds"):
            if (limit := getattr(self, name)) is not None and not limit > 0:
                raise ValueError(f"{name} must be above 0, not {limit}")
        self._parents: tuple[Budget, ...] = ()
        self._shares: list[Budget] = []
        self._used_tokens = 0
        self._used_cost = Decimal(0)
        self._used_seconds = 0.0
        self._at_work = 0
        self._since = 0.0
        self._clock: Clock | None = None

    def __repr__(self) -> str:
        limits = {"tokens": self.tokens, "cost_usd": self.cost_usd, "seconds": self.seconds}
        given = ", ".join(f"{name}={limit}" for name, limit in limits.items() if limit is not None)
        return f"Budget({given})"

    def child(
        self, tokens: int | None = None, cost_usd: Decimal | float | str | None = None, seconds: float | None = None
    ) -> Budget:
        """Return a budget within this one; its spending counts for both."""
        budget = Budget(tokens, cost_usd, seconds)
        budget._parents = self._nodes
        return budget

    @property
    def limits(self) -> dict[str, Any]:
        """The limits as JSON; `Budget(**limits)` is an unspent budget with them."""
        cost_usd = None if self.cost_usd is None else str(self.cost_usd)
        return {"tokens": self.tokens, "cost_usd": cost_usd, "seconds": self.seconds}

    @staticmethod
    def joined(*budgets: Budget | None) -> Budget | None:
        """Return a budget within all of these; None stands for no budget."""
        given = [budget for budget in budgets if budget is not None]
        if len(given) < 2:
            return given[0] if given else None
        joined = Budget()
        joined._parents = tuple(dict.fromkeys(node for budget in given for node in budget._nodes))
        return joined

    @property
    def spent(self) -> Spent:
        """The tokens, cost and time used so far, including reservations."""
        with _lock:
            return Spent(self._used_tokens, self._used_cost, self._elapsed())

    def add_spent(self, spent: Spent) -> None:
        """Count what was spent of this budget in an earlier process; its parents stay unchanged."""
        with _lock:
            self._used_tokens += spent.tokens
            self._used_cost += spent.cost_usd
            self._used_seconds += spent.seconds

    # --- model calls --------------------------------------------------------------------------------------------------

    def reserve(self, model: ChatModel, input_tokens: int, output_tokens: int | None) -> Reservation:
        """Reserve a call of `model` with a reply of at most `output_tokens`, at this budget and its parents.

        The reservation may have fewer output tokens. Raises `BudgetExceeded` if too little is left, or if the cost is
        limited and the model's price unknown.
        """
        wanted = _DEFAULT_OUTPUT_TOKENS if output_tokens is None else output_tokens
        with _lock:
            granted = min(budget._affordable(model, input_tokens, wanted, self._nodes) for budget in self._nodes)
            usage = Usage(input_tokens=input_tokens, output_tokens=granted)
            reservation = Reservation(self._nodes, usage, largest_cost(model, usage) or Decimal(0))
            reservation.add(input_tokens + granted, reservation.cost_usd)
        return reservation

    def reserve_cost(self, name: str, cost_usd: Decimal | None) -> Reservation:
        """Reserve a call of the paid service `name` for at most `cost_usd` US dollars, at this budget and its parents.

        Raises `BudgetExceeded` if too little is left, or if the cost is limited and `cost_usd` unknown (None).
        """
        with _lock:
            for node in self._nodes:
                node._check_cost(name, cost_usd, self._nodes)
            reservation = Reservation(self._nodes, Usage(input_tokens=0, output_tokens=0), cost_usd or Decimal(0))
            reservation.add(0, reservation.cost_usd)
        return reservation

    @contextmanager
    def divided(self, models: Sequence[ChatModel], input_tokens: int) -> Generator[Sequence[Budget]]:
        """Reserve an equal share of what is left for an agent with each of the models, while the block runs.

        A share is a budget within this one that no other agent can use. Raises `BudgetExceeded`, with nothing
        reserved, if a share is too small for a call with so many tokens of input, or if the cost is limited and the
        price of a model unknown.
        """
        try:
            with _lock:
                shares = [self._share(len(models)) for _ in models]
                for share, model in zip(shares, models, strict=True):
                    share._affordable(model, input_tokens, output_limit(model) or _DEFAULT_OUTPUT_TOKENS)
                for node in self._nodes:
                    node._shares += shares
        except BudgetExceeded as exc:
            text = f"the budget cannot be divided among {len(models)} agents: {exc}"
            raise BudgetExceeded(text, code=exc.code) from exc
        try:
            yield shares
        finally:
            with _lock:
                for node in self._nodes:
                    node._shares = [share for share in node._shares if share not in shares]

    def _share(self, count: int) -> Budget:
        tokens, cost = list[int](), list[Decimal]()
        for node in self._nodes:
            used_tokens, used_cost = node._taken()
            if node.tokens is not None:
                tokens.append((node.tokens - used_tokens) // count)
                if tokens[-1] <= 0:
                    raise _exceeded(f"{node.tokens} tokens", f"{used_tokens} are used")
            if node.cost_usd is not None:
                cost.append((node.cost_usd - used_cost) / count)
                if cost[-1] <= 0:
                    raise _exceeded(f"${node.cost_usd}", f"${used_cost} are used")
        return self.child(min(tokens, default=None), min(cost, default=None))

    def _taken(self, nodes: Sequence[Budget] = ()) -> tuple[int, Decimal]:
        """Return what is used of this budget or reserved for shares, except for the shares among `nodes`."""
        tokens, cost = self._used_tokens, self._used_cost
        for share in self._shares:
            if share not in nodes:
                tokens += max(0, (share.tokens or 0) - share._used_tokens)
                cost += max(Decimal(0), (share.cost_usd or Decimal(0)) - share._used_cost)
        return tokens, cost

    @property
    def _nodes(self) -> tuple[Budget, ...]:
        return (self, *self._parents)

    def _affordable(self, model: ChatModel, input_tokens: int, wanted: int, nodes: Sequence[Budget] = ()) -> int:
        """Return the output tokens that this budget allows a call within `nodes`.

        Raises `BudgetExceeded` if these are too few.
        """
        least, granted = min(wanted, _LEAST_OUTPUT_TOKENS), wanted
        tokens, cost = self._taken(nodes)
        if self.tokens is not None:
            left = self.tokens - tokens - input_tokens
            granted = min(granted, max(left // 2, min(least, left)))
            if granted < least:
                needed = f"{tokens} are used and {input_tokens + least} needed with the shortest answer"
                raise _exceeded(f"{self.tokens} tokens", needed)
        if self.cost_usd is not None:
            input_cost = _known_cost(model, input_tokens, 0)
            left = self.cost_usd - cost - input_cost
            price = _known_cost(model, input_tokens, _MANY) - input_cost
            if price > 0:
                affordable = int(max(left / 2, min(price * least / _MANY, left)) * _MANY / price)
                granted = min(granted, affordable)
            if granted < least or left < 0:
                raise _exceeded(f"${self.cost_usd}", f"${cost} are used and ${input_cost} needed for input")
        self._check_seconds()
        return granted

    def _check_cost(self, name: str, cost_usd: Decimal | None, nodes: Sequence[Budget]) -> None:
        """Raise `BudgetExceeded` if this budget does not have `cost_usd` left for a call within `nodes`."""
        tokens, cost = self._taken(nodes)
        if self.tokens is not None and tokens >= self.tokens:
            raise _exceeded(f"{self.tokens} tokens", "they are used")
        if self.cost_usd is not None:
            if cost_usd is None:
                raise _unknown_price(name)
            if cost + cost_usd > self.cost_usd:
                raise _exceeded(f"${self.cost_usd}", f"${cost} are used and ${cost_usd} needed for {name}")
        self._check_seconds()

    # --- time ---------------------------------------------------------------------------------------------------------

    def start_work(self, clock: Clock) -> None:
        """Count the time of this budget and its parents until `end_work`."""
        self._change_work(clock, 1)

    def end_work(self, clock: Clock) -> None:
        """Stop counting, at the end of the work or while it waits for a person."""
        self._change_work(clock, -1)

    def seconds_left(self) -> float:
        """Return the nominal seconds of work until this budget or one of its parents is used up."""
        with _lock:
            return max(0.0, min(node._seconds_left() for node in self._nodes))

    def check_seconds(self) -> None:
        """Raise `BudgetExceeded` if the time of this budget or one of its parents is used up."""
        with _lock:
            for node in self._nodes:
                node._check_seconds()

    def _check_used(self) -> None:
        """Raise `BudgetExceeded` if the used and reserved amounts exceed this budget."""
        if self.tokens is not None and self._used_tokens > self.tokens:
            raise _exceeded(f"{self.tokens} tokens", f"{self._used_tokens} are used or needed for another attempt")
        if self.cost_usd is not None and self._used_cost > self.cost_usd:
            raise _exceeded(f"${self.cost_usd}", f"${self._used_cost} are used or needed for another attempt")
        self._check_seconds()

    def _check_seconds(self) -> None:
        if self.seconds is not None and self._elapsed() >= self.seconds:
            raise _exceeded(f"{self.seconds:g} s", "they are used")

    def _change_work(self, clock: Clock, by: int) -> None:
        with _lock:
            for node in self._nodes:
                node._used_seconds = node._elapsed()
                node._clock, node._since, node._at_work = clock, clock.monotonic(), node._at_work + by

    def _elapsed(self) -> float:
        if not self._at_work or self._clock is None:
            return self._used_seconds
        return self._used_seconds + self._clock.monotonic() - self._since

    def _seconds_left(self) -> float:
        return float("inf") if self.seconds is None else self.seconds - self._elapsed()


def checked_budget(budget: Budget | None) -> Budget | None:
    """Return `budget`; raise `TypeError` unless it is a `Budget` or None."""
    if budget is not None:
        check_type("budget", budget, Budget, "a Budget")
    return budget


def settings_budget(settings: Settings, own: Budget | None = None) -> Budget | None:
    """Return a new budget with the settings' limits for each turn, within `own` too; None if there are no limits."""
    tokens, cost_usd = settings.turn_budget_tokens or None, settings.turn_budget_usd or None
    if tokens is None and cost_usd is None:
        return own
    return Budget.joined(own, Budget(tokens=tokens, cost_usd=cost_usd))


def _exceeded(limit: str, detail: str) -> BudgetExceeded:
    return BudgetExceeded(f"the budget of {limit} is exceeded: {detail}", code="budget_exceeded")


def _known_cost(model: ChatModel, input_tokens: int, output_tokens: int) -> Decimal:
    cost = largest_cost(model, Usage(input_tokens=input_tokens, output_tokens=output_tokens))
    if cost is None:
        raise _unknown_price(model.name)
    return cost


def _unknown_price(name: str) -> BudgetExceeded:
    text = f"the price of {name} is unknown, so its calls cannot be kept within a budget in US dollars"
    return BudgetExceeded(text, code="budget_exceeded")


@dataclass(slots=True)
class Reservation:
    """The reserved use of a call, held at its budgets until `settle`; `usage` has the reserved tokens."""

    nodes: Sequence[Budget]
    usage: Usage
    cost_usd: Decimal

    def add(self, tokens: int, cost: Decimal) -> None:
        """Add to the used amounts; the caller holds the lock."""
        for node in self.nodes:
            node._used_tokens += tokens  # pyright: ignore[reportPrivateUsage]
            node._used_cost += cost  # pyright: ignore[reportPrivateUsage]

    def add_failed(self, usage: Usage) -> None:
        """Count a failed attempt; the reservation stays for the next one."""
        with _lock:
            self.add(_token_sum(usage), usage.cost_usd or Decimal(0))

    def check(self) -> None:
        """Raise `BudgetExceeded` if the used and reserved amounts exceed a budget."""
        with _lock:
            for node in self.nodes:
                node._check_used()  # pyright: ignore[reportPrivateUsage]

    def settle(self, usage: Usage | None) -> Spent:
        """Replace the reservation by the reported usage, and return the amounts that stay because they were unreported.

        `usage` is None if the call failed before the model answered. A count that the provider did not report stays
        reserved, and so does the cost of a reply that was cut.
        """
        used, unreported = Usage(), Spent()
        if usage is not None:
            used = usage
            counts = zip(_counts(used), _counts(self.usage), strict=True)
            missing = sum(reserved or 0 for count, reserved in counts if count is None)
            unreported = Spent(missing, self.cost_usd if used.cost_usd is None else Decimal(0))
        tokens = _token_sum(used) + unreported.tokens
        cost = (used.cost_usd or Decimal(0)) + unreported.cost_usd
        with _lock:
            self.add(tokens - _token_sum(self.usage), cost - self.cost_usd)
        return unreported


def _counts(usage: Usage) -> tuple[int | None, int | None]:
    return usage.total_input_tokens, usage.total_output_tokens


def _token_sum(usage: Usage) -> int:
    return sum(filter(None, _counts(usage)))


def _dollars(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise wrong_type("cost_usd", value, "a number of US dollars")
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        raise ValueError(f"cost_usd must be a number of US dollars, not {value!r}") from None
    if not amount.is_finite():
        raise ValueError(f"cost_usd must be a finite number, not {value!r}")
    return amount


def _seconds(value: float) -> float:
    check_number("seconds", value, "a number of seconds")
    if not math.isfinite(value):
        raise ValueError(f"seconds must be a finite number, not {value!r}")
    return float(value)
