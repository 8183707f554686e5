"""The approval over server-sent events: what runs, and the model calls and tokens that it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from agenticx.testing import ScriptedModel, call, say, usage
from tests.examples.approval_over_sse import converse, refund
from tests.support.server.running_studio import running_studio

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("approved", "result"), [(True, "order 7 is refunded"), (False, "denied")])
async def test_a_call_runs_when_the_person_approves_it(tmp_path: Path, approved: bool, result: str) -> None:
    asked: list[str] = []

    async def decide(question: str) -> bool:
        asked.append(question)
        return approved

    script = [[call("refund", {"order": 7}), usage(40, 9)], [say("Done."), usage(60, 3)]]
    with ScriptedModel(script) as model:
        async with running_studio(tmp_path, model, tools=[refund]) as studio:
            end = await converse(studio.client, "Refund order 7.", decide)
    assert (end["text"], end["usage"]) == ("Done.", {"input_tokens": 100, "output_tokens": 12})
    assert len(asked) == 1
    assert "refund" in asked[0]
    assert result in model.requests[1].messages[-1].content.lower()
