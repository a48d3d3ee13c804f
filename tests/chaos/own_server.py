"""A PostgreSQL server that only the tests of one file use, so that they may do to it what they like."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Cli
from tests.postgres import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server.start(tmp_path_factory.mktemp("server"), listen_addresses="*") as server:
        [(path,)] = server.sql("SHOW hba_file")
        with open(path, "a") as file:
            file.write("host all all 198.18.0.0/15 trust\n")
        server.sql("SELECT pg_reload_conf()")
        yield server


@pytest.fixture
def schema() -> str:
    return f"test_{uuid.uuid4().hex}"


@pytest.fixture
def q(tmp_path: Path, server: Server, schema: str) -> Iterator[Cli]:
    cli = Cli(tmp_path, server.url(schema))
    cli.ok("status")
    yield cli
    cli.end_all()
