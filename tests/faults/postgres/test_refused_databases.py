"""Databases that a store refuses when it is opened, each with a sentence."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("asyncpg", reason="needs asyncpg, of the extra postgres")

from agenticx import AgenticXError
from agenticx.errors import SettingsError, StoreError
from tests.support.postgres.cluster import Cluster, cluster, multi_host_url, requires_postgres
from tests.support.postgres.stores import store_url
from tests.support.postgres.writers import open_postgres

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane, requires_postgres]

TRIED_SECONDS = 3.0  # for which a server is tried again that may be usable a little later


async def refusal(url: str, **options: float) -> tuple[type[AgenticXError], str]:
    """Return the error with which a store is refused, without the name of the server at the start of its message."""
    with pytest.raises((StoreError, SettingsError)) as caught:
        async with open_postgres(url, **options):
            pass
    return type(caught.value), re.sub(r"postgresql://127\.0\.0\.1:\d+(/\w+)?", "SERVER", str(caught.value))


def database_of(url: str) -> str:
    return url.rpartition("/")[2]


@pytest.mark.ci_lane
async def test_settings_that_lose_commits_are_refused() -> None:
    async with cluster(fsync=False, in_memory=True) as server:
        assert await refusal(server.url()) == (
            StoreError,
            "SERVER has fsync off: a power cut would lose commits and damage the database; set fsync = on",
        )
    async with cluster(in_memory=True, config={"synchronous_commit": "off"}) as server:
        assert await refusal(server.url()) == (
            StoreError,
            "SERVER has synchronous_commit off: a crash would lose commits that were acknowledged; set it to on",
        )


@pytest.mark.ci_lane
async def test_a_standby_is_refused_and_a_commit_survives_on_replicas_with_a_synchronous_one() -> None:
    async with cluster(in_memory=True) as server:
        url = await store_url(server)
        async with open_postgres(url) as store:
            assert store.log.durability == "disk"
        standby = await server.standby(synchronous=True)
        async with open_postgres(url) as store:
            assert store.log.durability == "replicas"
        error, sentence = await refusal(standby.url(database_of(url)), timeout=TRIED_SECONDS)
        assert (issubclass(error, StoreError), sentence) == (True, "SERVER is a standby, which cannot be written")
        # The primary is found wherever it is in the list.
        async with open_postgres(multi_host_url([standby.port, server.port], database_of(url))) as store:
            assert store.log.durability == "replicas"


async def test_a_newer_schema_and_the_tables_of_another_program_are_refused(postgres: Cluster) -> None:
    url = await store_url(postgres)
    await postgres.sql("UPDATE meta SET value = '999' WHERE key = 'version'", database_of(url))
    error, sentence = await refusal(url)
    assert error is StoreError
    assert re.fullmatch(
        r"SERVER has version 999 of the session database, and this AgenticX has version \d+; use a newer AgenticX",
        sentence,
    )
    url = await postgres.fresh_database()
    await postgres.sql("CREATE TABLE invoice (number int)", database_of(url))
    assert await refusal(url) == (
        StoreError,
        "SERVER has tables of another program; name an empty database in the URL of the store",
    )
    tables = "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"
    assert await postgres.sql(tables, database_of(url)) == "invoice"


@pytest.mark.ci_lane
async def test_an_unknown_database_or_user_and_a_wrong_password_are_refused() -> None:
    async with cluster(in_memory=True) as server:
        assert await refusal(server.url("nowhere")) == (
            SettingsError,
            'the URL of the store is refused by SERVER: database "nowhere" does not exist',
        )
        assert await refusal(server.url().replace("agx@", "nobody@")) == (
            SettingsError,
            'the URL of the store is refused by SERVER: role "nobody" does not exist',
        )
        await server.sql("CREATE ROLE guest LOGIN PASSWORD 'right'")
        (server.data / "pg_hba.conf").write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        await server.sql("SELECT pg_reload_conf()")
        error, sentence = await refusal(server.url().replace("agx@", "guest:wrong-one@"))
        assert error is SettingsError
        assert sentence == 'the URL of the store is refused by SERVER: password authentication failed for user "guest"'


async def test_a_database_that_can_only_be_read_is_refused_at_once(postgres: Cluster) -> None:
    url = await store_url(postgres)
    await postgres.sql(f"ALTER DATABASE {database_of(url)} SET default_transaction_read_only = on")
    sentence = "SERVER has default_transaction_read_only on: nothing can be written; set it to off"
    assert await refusal(url) == (StoreError, sentence)


async def test_a_server_that_is_not_there_is_refused(postgres: Cluster) -> None:
    error, sentence = await refusal(multi_host_url([1], "x"), timeout=TRIED_SECONDS)
    assert issubclass(error, StoreError)
    assert sentence.startswith("SERVER cannot be reached: ")


async def test_an_old_server_is_refused(postgres: Cluster) -> None:
    """The server is not old: a function that is found before its own says so in this database."""
    url = await postgres.fresh_database()
    await postgres.sql(
        """CREATE FUNCTION current_setting(name text) RETURNS text LANGUAGE sql AS $$
               SELECT CASE name WHEN 'server_version_num' THEN '130014' WHEN 'server_version' THEN '13.14'
                   ELSE pg_catalog.current_setting(name) END
           $$""",
        database_of(url),
    )
    await postgres.sql(f"ALTER DATABASE {database_of(url)} SET search_path = public, pg_catalog")
    assert await refusal(url) == (StoreError, "SERVER is PostgreSQL 13.14; AgenticX needs version 14 or newer")
