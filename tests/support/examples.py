"""The number of Hypothesis examples in each lane."""

from __future__ import annotations

from typing import get_args

from hypothesis import settings

from tests.support.lanes import Count, Lane

__all__ = ["examples"]


def examples(quick: int, ci: int, deep: int) -> settings:
    """Return a decorator that sets the number of examples of a test, like `count(quick, ci, deep)`.

    Decorators are evaluated before there are fixtures: the lane is that of the profile which `conftest.py` has loaded.
    """
    lane: Lane = next(lane for lane in get_args(Lane) if settings.get_profile(lane) is settings.default)
    return settings(max_examples=Count(lane)(quick, ci, deep))
