"""`agx chat` with a server whose application has agents of its own."""

from __future__ import annotations

import signal
from typing import Any

from tests.support.timeouts import PATIENCE

OWN_AGENTS = """
from agenticx.core import Agent, Result
from agenticx.testing import ScriptedModel, call
from studio import create_app

def transfer_to_billing() -> Agent:
    return billing

model = ScriptedModel([call("transfer_to_billing"), "What for?", "Two."])
billing = Agent(name="Billing")
app = create_app(models={"own": model}, tools=[transfer_to_billing], agents=[billing])
"""


def test_a_chat_shows_who_takes_over_and_chooses_who_answers(agx: Any) -> None:
    (agx.folder / "own.py").write_text(OWN_AGENTS)
    served = agx.start("serve", "--port", "0", "--app", "own:app")
    assert "is ready" in served.stderr.readline()
    lines = "/agent\nPay!\n/agent\n/agent Nobody\n/agent meta\nsay two\n"
    done = agx("chat", "--model", "own", "--permission-mode", "auto", stdin=lines)
    served.send_signal(signal.SIGTERM)
    served.communicate(timeout=PATIENCE)
    assert done.stdout == "What for?\nTwo.\n"
    shown = [line for line in done.stderr.splitlines() if "agent" in line or "hands over" in line]
    assert shown == [
        "/agent is for a session; your next message starts one",
        "… meta hands over to Billing",
        "… agent: Billing",
        "agent: Billing",
        "unknown agent 'Nobody'; known agents: 'Billing'; null stands for the main agent",
        "agent: meta",
    ]
