"""Each mechanism taken out makes a named test fail: else that test would show nothing."""

from __future__ import annotations

import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import kill, processes_with

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "queuectl"

# name: the file, the mechanism in it, what is put in its place, and the test that must notice
MUTANTS = {
    "no fence": (
        "store/statements.py",
        "AND jobs.run = {each:run} AND jobs.state = 'processing'\n   AND jobs.worker_id = :worker AND",
        "AND",
        "tests/contract/test_fence.py::test_a_worker_that_lost_its_claim_cannot_settle",
    ),
    "no fence around what runs say": (
        "store/statements.py",
        "AND jobs.run = {each:run} AND jobs.state = {each:state} AND jobs.worker_id = :worker\n    ON",
        "\n    ON",
        "tests/contract/test_results.py::test_a_late_report_does_not_replace_that_of_the_next_run",
    ),
    "no kill before the requeue": (
        "worker/recovery.py",
        "not kill_survivors(self._traces_of(worker, claims), patience)",
        "False",
        "tests/chaos/test_crash_points.py::test_a_worker_killed_at_any_step_loses_nothing_and_overlaps_nothing"
        "[after:queuectl.worker.process:Run._start]",
    ),
    "no sync": (
        "store/sqlite.py",
        'self._db.pragma("synchronous", "full")',
        'self._db.pragma("synchronous", "normal")',
        "tests/chaos/test_powercut.py::test_acknowledged_jobs_survive_a_power_cut",
    ),
    "the living taken for dead": (
        "bell.py",
        "return error.errno != errno.ENXIO",
        "return False",
        "tests/unit/test_bell.py",
    ),
    "a pid is enough": (
        "worker/kin.py",
        "first <= table[pid].started <= last",
        "True",
        "tests/unit/test_board.py::test_a_pid_that_belongs_to_another_by_now_is_left_alone",
    ),
    "a board from elsewhere is believed": (
        "worker/board.py",
        "if not rest.startswith(place) or (database and made_for != database):",
        "if False:",
        "tests/unit/test_board.py::test_a_board_from_elsewhere_means_nothing",
    ),
    "no tag in the environment": (
        "worker/kin.py",
        "or look.tag(pid) in traces.tags\n",
        "\n",
        "tests/unit/test_process.py::test_ending_a_run_ends_its_grandchildren_in_other_sessions_too",
    ),
    "no board": (
        "worker/kin.py",
        "sessions = leaders |",
        "leaders.clear()\n    sessions = leaders |",
        "tests/chaos/test_hiding.py::test_hidden_processes_are_ended_before_the_job_runs_again",
    ),
    "no control group": (
        "worker/kin.py",
        "found | _hidden(table, traces, look)",
        "found",
        "tests/chaos/test_hiding.py::test_with_a_control_group_nothing_hides",
    ),
    "the leftovers of a failed run stay": (
        "worker/process.py",
        "if status != 0 and self.ending is None:",
        "if False:",
        "tests/chaos/test_tricks.py::test_what_a_failed_run_left_behind_is_ended_before_the_next_run",
    ),
    "a copy of the queue passes for the original": (
        "worker/kin.py",
        'return f"{database}:{worker_id}:{claim.seq}:{claim.run}"',
        'return f"{worker_id}:{claim.seq}:{claim.run}"',
        "tests/chaos/test_tricks.py::test_a_worker_of_a_copy_leaves_the_originals_processes_alone",
    ),
    "no second look after an unanswered commit": (
        "worker/worker.py",
        "if not self._in_doubt:\n            return None\n",
        "return None\n",
        "tests/chaos/test_postgres.py::test_a_worker_cut_off_at_its_commit_goes_on_where_it_was[claim-unanswered]",
    ),
    "what is settled is settled again": (
        "store/runs.py",
        'if not tx.rows(sql.ALREADY_SETTLED, {**fence, "reasons": [row["reason"], again["reason"]]}):',
        "if True:",
        "tests/chaos/test_postgres.py::test_a_worker_cut_off_at_its_commit_goes_on_where_it_was[settle-unanswered]",
    ),
    "no promise to other machines": (
        "worker/lease.py",
        "if self._file < 0:",
        "return\n        if self._file < 0:",
        "tests/chaos/test_postgres.py::test_a_machine_that_is_cut_off_ends_its_runs_before_others_take_over",
    ),
    "everyone counts for himself": (
        "store/postgres.py",
        "mine = {stripe for (stripe,) in self.rows(WAIT_FOR if patiently else TRY_FOR, wanted)}",
        "mine = set(wanted['stripes'])",
        "tests/contract/test_limits.py"
        "::test_who_comes_second_to_a_limited_queue_neither_waits_nor_overlooks_it[postgres]",
    ),
    "an end lets nobody go": (
        "store/limits.py",
        "if busy >= limit_of(said, queue, own):",
        "if True:",
        "tests/contract/test_limits.py::test_of_jobs_with_the_same_key_one_runs_at_once[sqlite]",
    ),
    "a firing belongs to everybody": (
        "store/schedules.py",
        "            if self._take(tx, one, moment):\n",
        "            if self._take(tx, one, moment) or True:\n",
        "tests/contract/test_schedules.py::test_a_firing_that_somebody_has_taken_is_passed_over[sqlite]",
    ),
    "a rate forgets its starts": (
        "store/limits.py",
        'self._tx.run(sql.COUNT_STARTS, {"queue": name, "at": at, "n": n})',
        "pass",
        "tests/contract/test_limits.py::test_no_window_has_more_starts_than_the_rate[sqlite]",
    ),
    "locks outlive their holder": (
        "store/postgres.py",
        ', "idle_in_transaction_session_timeout": 5000',
        "",
        "tests/chaos/test_postgres.py::test_a_machine_that_vanishes_in_a_transaction_takes_no_lock_along",
    ),
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(SOURCE, tmp_path / "queuectl")  # with its bytecode, which goes by the time and size of a source
    return tmp_path / "queuectl"


def run(copy: Path, *tests: str, deadline: int = 60) -> subprocess.CompletedProcess[str]:
    """Run tests against the copy. As on CI: a privilege that is missing is a failure, not a skip."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts="]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        env={
            **os.environ,
            "PYTHONPATH": str(copy.parent),
            "CI": "true",
            "MUTANT": str(copy),
            "DEADLINE": str(deadline),
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    for pid in processes_with(f"MUTANT={copy}"):  # without its mechanism, a run may leave processes behind
        kill(pid)
    return done


def test_with_nothing_taken_out_they_all_pass(copy: Path) -> None:
    done = run(copy, *{test for *_, test in MUTANTS.values()})
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.parametrize("name", MUTANTS)
def test_a_test_notices_what_was_taken_out(copy: Path, name: str) -> None:
    file, mechanism, without, test = MUTANTS[name]
    text = (copy / file).read_text()
    assert text.count(mechanism) == 1, "the mutation no longer fits the code"
    (copy / file).write_text(text.replace(mechanism, without))
    py_compile.compile(str(copy / file), doraise=True)  # once, not by each process that is started
    done = run(copy, test, deadline=30)  # some would wait for ever
    assert done.returncode == 1, f"{test} did not notice:\n{done.stdout[-2000:]}"
    assert " failed" in done.stdout
