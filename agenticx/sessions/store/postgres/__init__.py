"""The store in PostgreSQL, which many workers share."""

from agenticx.sessions.store.postgres._check import check_database
from agenticx.sessions.store.postgres._connection import describe_url
from agenticx.sessions.store.postgres._purging import purge_database
from agenticx.sessions.store.postgres._report import read_report
from agenticx.sessions.store.postgres._shard_list import check_databases
from agenticx.sessions.store.postgres._shared import PostgresValues
from agenticx.sessions.store.postgres._timelines import KnownTimelines
from agenticx.sessions.store.postgres.store import PostgresStore

__all__ = [
    "KnownTimelines",
    "PostgresStore",
    "PostgresValues",
    "check_database",
    "check_databases",
    "describe_url",
    "purge_database",
    "read_report",
]
