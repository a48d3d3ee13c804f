"""Each mechanism taken out makes a named test fail: else that test would show nothing."""

from __future__ import annotations

import os
import py_compile
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import kill, processes_with

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "queuectl"

INTERRUPTED = (
    "tests/contract/test_interrupts.py::test_a_call_that_is_interrupted_at_any_moment_keeps_no_lock_and_hides_nothing"
)

# name: the file, the mechanism in it, what is put in its place, and the test that must notice
MUTANTS = {
    "no fence": (
        "store/write_queries.py",
        "AND jobs.run = {each:run} AND jobs.state = 'processing'\n   AND jobs.worker_id = :worker AND",
        "AND",
        "tests/contract/test_fence.py::test_a_worker_that_lost_its_claim_cannot_settle",
    ),
    "no fence around what runs say": (
        "store/write_queries.py",
        "AND jobs.run = {each:run} AND jobs.state = {each:state} AND jobs.worker_id = :worker\n    ON",
        "\n    ON",
        "tests/contract/test_results.py::test_a_late_report_does_not_replace_that_of_the_next_run",
    ),
    "no kill before the requeue": (
        "worker/recovery.py",
        "not kill_survivors(traces, patience)",
        "False",
        # With its manager killed, too: that one would have ended them.
        "tests/chaos/test_hiding.py::test_hidden_processes_are_ended_before_the_job_runs_again"
        "[another session-hit_everyone]",
    ),
    "no sync": (
        "store/sqlite.py",
        'self._db.pragma("synchronous", "full")',
        'self._db.pragma("synchronous", "normal")',
        "tests/chaos/test_powercut.py::test_acknowledged_jobs_survive_a_power_cut",
    ),
    "the living taken for dead": (
        "system/wakeup.py",
        "return error.errno != errno.ENXIO",
        "return False",
        "tests/unit/test_wakeup.py",
    ),
    "what another user has planted is believed": (
        "system/private_files.py",
        "return uid in (ROOT, os.geteuid())",
        "return True",
        "tests/unit/test_private_files.py::test_a_folder_of_another_user_leads_to_nothing_that_can_be_trusted",
    ),
    "a folder that everyone can write to is believed": (
        "system/private_files.py",
        "if found.st_mode & _OTHERS_WRITE:",
        "if False:",
        "tests/unit/test_private_files.py::test_a_folder_that_others_can_write_to_is_refused_for_our_own_files",
    ),
    "a planted link is followed": (
        "system/private_files.py",
        "flags | os.O_NOFOLLOW |",
        "flags |",
        "tests/unit/test_private_files.py::test_only_a_regular_file_with_one_name_is_opened",
    ),
    "a log that was removed is not missed": (
        "store/sqlite.py",
        "for path, held in self._held.items():",
        "for path, held in [*self._held.items()][:1]:",
        "tests/contract/test_sqlite.py::test_a_worker_notices_that_a_file_beside_its_database_was_removed",
    ),
    "a log without a name is let go": (
        "store/sqlite.py",
        'self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()',
        "pass",
        "tests/contract/test_sqlite.py::test_what_was_acknowledged_is_saved_from_a_log_that_was_removed",
    ),
    "a queue is opened under those who use files that are gone": (
        "store/sqlite.py",
        "return not complete and wakeup.anyone(self.run_dir)",
        "return False",
        "tests/contract/test_sqlite.py::test_nobody_opens_a_queue_whose_files_were_removed_under_a_worker",
    ),
    "what lost runs are found by is swept away": (
        "worker/recovery.py",
        "wakeup.owner_of(name) not in lost and ",
        "",
        "tests/unit/test_recovery.py",
    ),
    "a pid is enough": (
        "worker/process_tree.py",
        "if procfs.start_time(pid) == started:",
        "if True:",
        "tests/unit/test_process.py::test_a_pid_that_belongs_to_another_by_now_is_left_alone",
    ),
    "a board from elsewhere is believed": (
        "worker/run_registry.py",
        "if not rest.startswith(place) or (database and made_for != database):",
        "if False:",
        "tests/unit/test_run_registry.py::test_a_board_from_elsewhere_means_nothing",
    ),
    "no tag in the environment": (
        "worker/process_tree.py",
        "return mark in to.marks if mark else self._tag(pid) in to.tags",
        "return mark in to.marks",
        "tests/unit/test_process.py::test_grandchildren_in_sessions_of_their_own_are_found",
    ),
    "no mark": (
        "worker/process_tree.py",
        "return mark in to.marks if mark else self._tag(pid) in to.tags",
        "return self._tag(pid) in to.tags",
        "tests/unit/test_process.py::test_a_process_without_parent_session_and_environment_is_found_by_its_mark",
    ),
    "orphans are not adopted": (
        "worker/subreaper.py",
        "        adopt_orphans()\n",
        "",
        "tests/chaos/test_leftovers.py::"
        "test_nothing_of_a_run_lives_when_the_next_one_starts_or_the_job_has_ended[exit-4]",
    ),
    "a successor starts beside the processes of the dead": (
        "worker/subreaper.py",
        "return [pid for pid in procfs.children() if self._mark(pid) in wanted]",
        "return []",
        "tests/unit/test_subreaper.py::test_an_orphan_is_found_by_the_mark_of_its_run",
    ),
    "the leftovers of a failed run stay": (
        "worker/process.py",
        "if status != 0 and self.ending is None and self._is_left():",
        "if False:",
        "tests/chaos/test_tricks.py::test_what_a_failed_run_left_behind_is_ended_before_the_next_run",
    ),
    "a process that sheds the mark of its run is forgotten": (
        "worker/process.py",
        "self._known = known | find(self._traces, known=known)\n        return self._known",
        "return {}",
        "tests/chaos/test_leftovers.py::"
        "test_processes_that_shed_the_mark_of_their_run_are_ended_with_it[1-its parent leaves when asked to]",
    ),
    "a copy of the queue passes for the original": (
        "worker/process_tree.py",
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
        "store/claim_settle.py",
        "if not tx.rows(sql.ALREADY_SETTLED, fence | outcome):",
        "if True:",
        "tests/chaos/test_postgres.py::test_a_worker_cut_off_at_its_commit_goes_on_where_it_was[settle-unanswered]",
    ),
    "no promise to other machines": (
        "worker/lease.py",
        "if self._file < 0:",
        "return\n        if self._file < 0:",
        "tests/chaos/test_postgres.py::test_a_machine_that_is_cut_off_ends_its_runs_before_others_take_over",
    ),
    "no note of runs that a lease ended": (
        "worker/manager.py",
        "lease.mark_ended(self._run_dir, child.id, traces.tags)",
        "pass",
        "tests/chaos/test_postgres.py::test_a_run_that_its_workers_lease_ended_is_put_back_and_nothing_counted"
        "[before:queuectl.worker.worker:Worker._beat]",
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
        "if busy + len(found) >= limit_of(said, queue, own) or len(found) >= most:",
        "if True:",
        "tests/contract/test_limits.py::test_of_jobs_with_the_same_key_one_runs_at_once[sqlite]",
    ),
    "a firing belongs to everybody": (
        "store/schedules.py",
        "[moment for moment in due.moments if moment not in taken]",
        "due.moments",
        "tests/contract/test_schedules.py::test_a_firing_that_somebody_has_taken_is_passed_over[sqlite]",
    ),
    "a deleted parent is forgotten": (
        "store/write_queries.py",
        "(SELECT count(*) FROM dependencies WHERE child = jobs.seq AND dependencies.state || '' = 'broken')",
        "(SELECT count(*) FROM dependencies JOIN jobs AS parents ON parents.seq = parent"
        " WHERE child = jobs.seq AND dependencies.state = 'broken')",
        "tests/contract/test_dependencies.py::test_deleting_a_dead_parent_satisfies_no_child[sqlite-purge]",
    ),
    "what is left of a cascade is forgotten": (
        "store/dependencies.py",
        "            self._later.update(parents)\n",
        "            pass\n",
        "tests/contract/test_steps.py"
        "::test_workers_are_told_that_there_is_something_to_work_off_and_one_step_after_the_other_does_it[sqlite]",
    ),
    "a batch is claimed from while it is cancelled": (
        "store/claim_settle.py",
        "picked = batches.without_cancelled(tx, picked)",
        "pass",
        "tests/contract/test_steps.py::test_nothing_of_a_batch_is_claimed_while_the_rest_of_it_is_cancelled[sqlite]",
    ),
    "parents are cancelled before their children": (
        "store/bulk_changes.py",
        "order = _children_first(tx, found)",
        "order = list(found)",
        "tests/contract/test_steps.py::test_nothing_that_is_to_be_cancelled_may_run_between_two_steps[sqlite]",
    ),
    "a rate forgets its starts": (
        "store/limits.py",
        'self._tx.run(sql.COUNT_STARTS, {"queue": name, "at": at, "n": n})',
        "pass",
        "tests/contract/test_limits.py::test_no_window_has_more_starts_than_the_rate[sqlite]",
    ),
    "locks outlive their holder": (
        "store/postgres.py",
        '"idle_in_transaction_session_timeout": 5000',
        "",
        "tests/chaos/test_postgres.py::test_a_machine_that_vanishes_in_a_transaction_takes_no_lock_along",
    ),
    "an interrupted call keeps its transaction open": (
        "client/shared_connection.py",
        "connection.roll_back()",
        "pass",
        f"{INTERRUPTED}[sqlite-enqueue]",
    ),
    "what was stored is told as a failure": (
        "client/shared_connection.py",
        "stored = connection.commits != commits",
        "stored = False",
        f"{INTERRUPTED}[sqlite-cancel]",
    ),
    "threads use a connection at the same time": (
        "client/shared_connection.py",
        "with self._lock:\n                connection = self._ready()",
        "with threading.Lock():\n                connection, self._in_use = self._ready(), False",
        "tests/contract/test_threads.py::test_threads_share_a_queue[sqlite]",
    ),
    "a child process goes on with its parent's connection": (
        "client/shared_connection.py",
        "connection, self._connection = self._connection, None\n            connection.close_in_child()",
        "pass",
        "tests/contract/test_threads.py::test_a_child_process_has_a_connection_of_its_own[sqlite]",
    ),
}

# The same for the checker of the storms: the file, the mechanism, what is put in its place, and what it must say.
STORM = "tests/chaos/test_commands_storm.py::test_the_checker_finds_nothing_wrong_with_a_quiet_queue[sqlite]"
STORM_MUTANTS = {
    "a settle without its fence": (*MUTANTS["no fence"][:3], "): from "),
    "a recovery that does not put back": (
        "store/store.py",
        "settled, _ = claim_settle.settle(tx, worker, lost, cancels)",
        "settled: list[Params] = []",
        "was struck off while it held this job",
    ),
    "a counter that is not kept": (
        "store/migrations/0003_runs.sqlite.sql",
        "UPDATE counts SET n = n + 1 WHERE queue = NEW.queue AND state = NEW.state;",
        "SELECT 1;",
        "counted 0 completed in ",
    ),
    "a claim that ignores a limit": (
        "store/limits.py",
        "return int(rule.at_once - running)",
        "return NO_LIMIT",
        "ran and 1 may",
    ),
    "a parked job that is never let go": (*MUTANTS["an end lets nobody go"][:3], "nothing will let it go"),
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(SOURCE, tmp_path / "queuectl")  # with its bytecode, which goes by the time and size of a source
    return tmp_path / "queuectl"


def run(copy: Path, *tests: str, deadline: int = 60) -> subprocess.CompletedProcess[str]:
    """Run tests against the copy."""
    options = ["-x", "-rs", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        env={
            **os.environ,
            "PYTHONPATH": str(copy.parent),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # to load them takes longer than most of these tests
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


def mutate(copy: Path, file: str, mechanism: str, without: str) -> None:
    text = (copy / file).read_text()
    assert text.count(mechanism) == 1, "the mutation no longer fits the code"
    (copy / file).write_text(text.replace(mechanism, without))
    if file.endswith(".py"):
        py_compile.compile(str(copy / file), doraise=True)  # once, not by each process that is started


@pytest.mark.parametrize("name", MUTANTS)
def test_a_test_notices_what_was_taken_out(copy: Path, name: str) -> None:
    *mutation, test = MUTANTS[name]
    mutate(copy, *mutation)
    done = run(copy, test, deadline=20)  # some would wait for ever
    if done.returncode == 0 and " passed" not in done.stdout:  # what it needs is not to be had here
        [reason] = set(re.findall(r"^SKIPPED \[\d+\] \S+ (.*)", done.stdout, re.MULTILINE))
        pytest.skip(f"the test that must notice was left out: {reason}")
    assert done.returncode == 1, f"{test} did not notice:\n{done.stdout[-2000:]}"
    assert " failed" in done.stdout


@pytest.mark.parametrize("name", STORM_MUTANTS)
def test_the_checker_of_the_storms_says_what_was_taken_out(copy: Path, name: str) -> None:
    *mutation, words = STORM_MUTANTS[name]
    mutate(copy, *mutation)
    done = run(copy, STORM, deadline=8)
    assert done.returncode == 1, f"it did not notice:\n{done.stdout[-2000:]}"
    assert words in done.stdout
