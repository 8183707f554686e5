"""Teams in a session that another worker owns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agenticx.assembly import make_hub
from agenticx.llms import NamedModels, ScriptedModel
from agenticx.sessions import Hub, MemoryStore, Store
from agenticx.settings import load_settings
from agenticx.teams import AssistantAgent, RoundRobinGroupChat, TeamError
from agenticx.testing import collect
from agenticx.tools import Toolbox
from tests.support.postgres.stores import PostgresWorkers, store_url
from tests.support.teams.configured import log_of, speakers, team_file

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.ci_lane)])
async def workers(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Store, Store]]:
    """Return the stores of two workers with the same sessions."""
    if request.param == "memory":
        store = MemoryStore()
        yield store, store.other_worker()
        return
    opened = PostgresWorkers(await store_url(request.getfixturevalue("postgres")))
    yield opened.open(), opened.open()
    await opened.aclose()


def hub_over(store: Store, home: Path, model: ScriptedModel) -> Hub:
    settings = load_settings({"home": home, "workspace_root": home.parent}, environ={})
    models = NamedModels(settings, own={"scripted": model})
    return make_hub(store, models=models, toolbox=Toolbox([]), settings=settings)


async def test_a_configured_team_runs_at_the_owner_and_a_team_of_code_is_refused(
    workers: tuple[Store, Store], tmp_path: Path
) -> None:
    team_file(tmp_path / "home")
    owner = hub_over(workers[0], tmp_path / "home", ScriptedModel(["One.", "Two.", "Three.", "Four."]))
    other = hub_over(workers[1], tmp_path / "home", ScriptedModel([]))
    await other.recover()  # first, so that a session is found through it
    await owner.recover()
    session = await owner.create(team="pair")
    for hub, answer in ((owner, "Two."), (other, "Four.")):
        assert (await collect(hub.run_turn(session.id, "Write.")))[-1].data["text"] == answer
    team = RoundRobinGroupChat([AssistantAgent("a", ScriptedModel([]))], max_turns=1, session=session.id)
    with pytest.raises(TeamError, match=r"another worker, '.*', owns the session .*; run the team there, or as a conf"):
        await team.run(task="Write.")
    assert speakers(await log_of(owner, session.id)) == ["writer", "critic"] * 2
    await owner.close()
    await other.close()
