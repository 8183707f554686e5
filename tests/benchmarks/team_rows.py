"""Benchmarks of teams: the overhead of a message, and the tokens that a speech takes.

The overhead is shown beside that of autogen-agentchat where it is installed, in this environment or in that of
`AUTOGEN_PYTHON`, for example:

    python -m venv /tmp/autogen && /tmp/autogen/bin/pip install autogen-agentchat==0.7.5
    AUTOGEN_PYTHON=/tmp/autogen/bin/python python -m tests.benchmarks

Elsewhere the row has no floor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import mean, median

from agenticx.runtime.history_sizes import estimate_tokens
from agenticx.settings import load_settings
from agenticx.teams import AssistantAgent, RoundRobinGroupChat, TextMessage
from agenticx.testing import ScriptedModel, say
from tests.benchmarks.rows import Row, Scale

__all__ = ["team_rows"]

MICRO = 1e6
SPEECHES = 50
PARTICIPANTS = (2, 5, 10)
WORDS = "We should look at this from another side before we decide what comes next. " * 6


async def team_rows(scale: Scale) -> list[Row]:
    """Measure the overhead of a message, and the tokens of a speech at the end of a long talk."""
    return [_overhead(scale), *[await _tokens(participants) for participants in PARTICIPANTS]]


# --- overhead -------------------------------------------------------------------------------------------------------


def _overhead(scale: Scale) -> Row:
    ours = _micros_per_message(sys.executable, "agenticx", scale)
    python = os.environ.get("AUTOGEN_PYTHON", sys.executable)
    installed = subprocess.run([python, "-c", "import autogen_agentchat"], stderr=subprocess.DEVNULL).returncode == 0
    floor = _micros_per_message(python, "autogen", scale) if installed else None
    return Row(
        name="a message in a team of 5, beside autogen-agentchat",
        value=ours,
        unit="µs",
        floor=floor,
        goal=0.2 if installed else None,
    )


def _micros_per_message(python: str, package: str, scale: Scale) -> float:
    """Return the median CPU time of a message, in a process of its own."""
    program = Path(__file__).with_name("team_peer.py")
    command = [python, str(program), package, str(scale.team_messages), str(scale.repeats)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return median(json.loads(done.stdout)) / scale.team_messages * MICRO


# --- tokens ---------------------------------------------------------------------------------------------------------


async def _tokens(participants: int) -> Row:
    """Measure the second half of 50 speeches of about 110 tokens each; in the first half the talk still grows.

    Counted are all requests of a speech, also those of compactions. An agent reads at most 20 messages, and once more
    those of them that it compacts.
    """
    model = ScriptedModel([say(f"{number}. {WORDS}") for number in range(2 * SPEECHES)])
    agents = [
        AssistantAgent(f"agent_{number}", model, system_message="Discuss.", settings=load_settings(environ={}))
        for number in range(participants)
    ]
    taken: list[int] = []
    made = 0
    async for message in RoundRobinGroupChat(agents, max_turns=SPEECHES).run_stream(task="What comes next?"):
        if isinstance(message, TextMessage) and message.source != "user":
            taken.append(sum(estimate_tokens(request.messages) for request in model.requests[made:]))
            made = len(model.requests)
    name = f"tokens of a speech of {participants}, second half of {SPEECHES}"
    return Row(name=name, value=mean(taken[SPEECHES // 2 :]), unit="tokens", goal=4_000)
