"""A planner and workers: the steps of a plan are done in parallel, then a report is written.

    python -m tests.examples.planner_and_workers openai:gpt-4o "Compare the rivers of Lyon, Basel and Vienna."

Takes one model call for the plan, those of the workers, and one for the report. A worker that fails does not end the
others; the report is written without it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

from agenticx.core import Agent, AgentExecutor, ExecutionResult, Task
from agenticx.runtime import Budget

planner = Agent(name="Planner", instructions="Split the goal into independent steps, at most five.")
reporter = Agent(name="Reporter", instructions="Write a short report from the results of the steps.")


async def work_out(
    goal: str, model: Any = None, tools: Sequence[Callable[..., Any]] = (), budget: Budget | None = None
) -> tuple[ExecutionResult, Sequence[ExecutionResult]]:
    """Return the report and the results of the steps; all their model calls are made within `budget`."""
    executor = AgentExecutor(model, budget=budget)
    plan = await executor.arun(planner, Task(description=goal, output_type=list[str]))
    steps = [Task(description=step) for step in plan.output or [goal]]
    worker = Agent(name="Worker", instructions="Do this one step.", tools=tuple(tools), max_iterations=5)
    results = await asyncio.gather(*(executor.arun(worker, step) for step in steps))
    done = [step for step, result in zip(steps, results, strict=True) if result.success]
    return await executor.arun(reporter, Task(description=goal, context=tuple(done))), results


if __name__ == "__main__":
    report, _ = asyncio.run(work_out(sys.argv[2], sys.argv[1]))
    print(report.result)
