"""The agents of files, over HTTP."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.core.agent_files import AgentFiles, AgentItem, agent_item, with_model_problems
from agenticx.threads import run_in_thread
from studio.services import services

__all__ = ["AgentListResponse", "agents"]


class AgentListResponse(TypedDict):
    agents: Annotated[list[AgentItem], Field(description="The agents, by their names.")]


async def agents(request: Request) -> Response:
    """List the agents of files, with the problems of those that no session can be made with."""
    studio = services(request)
    await studio.models.refresh()
    found = await run_in_thread(AgentFiles(studio.settings.home).list_all, name="agx agents")
    found = with_model_problems(found, studio.models.get)
    return JSONResponse(AgentListResponse(agents=[agent_item(agent) for agent in found]))
