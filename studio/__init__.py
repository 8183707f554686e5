r"""The studio: AgenticX as a local server with a web page, for one user or inside an application.

Its HTTP API in one minute, with `agx serve` running in another terminal (curl 7.82 or newer); `/openapi.json` describes
every operation and every event:

    API=http://127.0.0.1:8765/api
    AUTH="Authorization: Bearer $(cat ~/.agenticx/token)"
    field() { python3 -I -c "import json, sys; print(json.load(sys.stdin)$1)"; }

    # create a session and start a turn; its events are printed as they arrive
    SESSION=$(curl -s -H "$AUTH" --json '{}' $API/sessions | field '["id"]')
    curl -sN -H "$AUTH" -H "Accept: text/event-stream" \
        --json '{"input": "Write hello.txt with the text Hello"}' $API/sessions/$SESSION/turns &
    sleep 2

    # the agent is waiting: read the confirmation, then approve exactly what it describes
    CONFIRM=$(curl -s -H "$AUTH" "$API/confirms?session_id=$SESSION")
    ID=$(field '["confirms"][0]["id"]' <<< "$CONFIRM")
    DIGEST=$(field '["confirms"][0]["digest"]' <<< "$CONFIRM")
    curl -s -H "$AUTH" --json "{\"approved\": true, \"digest\": \"$DIGEST\"}" $API/confirms/$ID
    wait

Teams and other agents use the same routes. In a session created with `{"team": "writer-critic"}` (`GET /api/teams`
lists the teams) each message is a task for that team, and the speeches are child turns of its run; an empty `input`
continues it. `GET /api/questions` lists what agents ask, and `POST /api/questions/{id}` with
`{"answer": "…"}` answers. `GET /api/sessions/{id}/subagents` lists the sub-agents that the agent has started, and `POST
…/subagents/{agent_id}/message`, `/cancel` and `/retry` direct one.

The stream ends with the turn's one terminal event. `GET /api/sessions/{id}/events` streams a session from its first
event on, and resumes after any event: `tests/node` and `tests/faults/test_real_clients.py` show that with stock
clients. npm `eventsource` needs nothing; `@microsoft/fetch-event-source` must be given the cursor of the last message;
httpx-sse reports `retry` and heartbeats as events without data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from studio.app import create_app

__all__ = ["create_app"]

__getattr__, __dir__ = lazy_imports(
    __name__,
    {
        "studio.app": ["create_app"],
    },
)
