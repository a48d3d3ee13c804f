"""The API against its own description: schemathesis makes up requests, good ones and bad ones, for a real server."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import allow_header_conformance, positive_data_acceptance, unsupported_method

from queuectl.store import open_store
from queuectl.web.api.openapi import document
from tests.e2e.conftest import Cli
from tests.web.conftest import Served, enqueue, serving

EXAMPLES = {"/jobs/": "over", "/queues/": "default", "/schedules/": "nightly", "/config/": "max_retries"}


def described() -> dict[str, Any]:
    """The document, with names that are there; the job has finished, so that nobody waits for it or follows it."""
    found = copy.deepcopy(document())
    for path, operations in found["paths"].items():
        for operation in operations.values():
            for param in operation["parameters"]:
                known = [name for part, name in EXAMPLES.items() if part in path]
                if param["in"] == "path" and known:
                    param["example"] = known[0]
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("schema")
    cli = Cli(folder)
    cli.db.parent.mkdir(mode=0o700)
    store = open_store(cli.url)
    enqueue(store, id="over")
    store.cancel(["over"])
    store.schedules.add("nightly", "0 1 * * *", None, "UTC", {"command": "true"})
    store.close()
    with serving(cli) as served:
        yield served


schema = schemathesis.openapi.from_dict(described())
schema.config.phases.coverage.enabled = False  # hundreds of requests for each operation: too long for every day

# A schema cannot say what a time or a cron expression is, nor that a job "cancel" may be got below POST /jobs/cancel.
UNSAID = [positive_data_acceptance, unsupported_method, allow_header_conformance]


@schema.parametrize()
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_as_described(case: schemathesis.Case[Any], server: Served) -> None:
    token = {"Authorization": f"Bearer {server.tokens['admin']}"}
    case.call_and_validate(base_url=server.url, headers=token, excluded_checks=UNSAID)
