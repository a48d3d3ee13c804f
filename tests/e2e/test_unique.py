"""Keys that only one unfinished job may have, as a user meets them."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Cli, refused


def test_what_a_duplicate_does_is_the_users_choice(q: Cli) -> None:
    q.ok("enqueue", "--id", "a", "--unique", "sync", "true")
    refused(
        q("enqueue", "--unique", "sync", "true"), 4, 'job "a" (pending) has the key "sync" already', "--on-duplicate"
    )
    assert q.ok("enqueue", "--unique", "sync", "--on-duplicate", "skip", "true") == (
        "Skipped: job a has the key sync already.\n"
    )
    assert q.ok("enqueue", "--quiet", "--unique", "sync", "--on-duplicate", "skip", "true") == "a\n"
    q.ok("enqueue", "--id", "b", "--unique", "sync", "--on-duplicate", "replace", "echo newer")
    assert (q.state("a"), q.state("b")) == ("cancelled", "pending")
    lines = '{"command": "true", "unique_key": "x"}\n' * 3
    assert q.ok("enqueue", "--on-duplicate", "skip", "-", stdin=lines).endswith(
        "Enqueued 1 job. 2 skipped: their keys are taken.\n"
    )
    assert "Unique key:  sync" in q.ok("show", "b")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--on-duplicate", "skip", "true"], ['without a "unique_key"']),
        (["--unique", "k", "--on-duplicate", "maybe", "true"], ["one of refuse, skip, replace"]),
        (["--unique", "", "true"], ['cannot be a "unique_key"']),
    ],
)
def test_a_bad_choice_is_refused(q: Cli, args: list[str], words: list[str]) -> None:
    refused(q("enqueue", *args), 2, *words)
