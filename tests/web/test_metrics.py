"""`/metrics`, as Prometheus scrapes it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from queuectl.store import Store
from tests.web.conftest import Served, enqueue


def test_a_viewers_token_is_enough_to_scrape(served: Served, store: Store) -> None:
    enqueue(store, queue="mail")
    with served.http(None) as stranger:
        assert stranger.get("/metrics").status_code == 401
    with served.http("viewer") as scraper:
        answer = scraper.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = {family.name: family for family in text_string_to_metric_families(answer.text)}
    jobs = {(one.labels["queue"], one.labels["state"]): one.value for one in found["queuectl_jobs"].samples}
    assert jobs["mail", "pending"] == 1
    assert found["queuectl_wait_seconds"].type == "histogram"
