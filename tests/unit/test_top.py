"""What `top` shows and what its keys do, without a terminal, whatever the size, the data and the keys."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.cli.top import screen
from queuectl.cli.top.text_layout import Line, cut, cut_start, one_line, paragraph, width, wrapped
from queuectl.cli.top.view import (
    BOTTOM,
    HELP,
    JOB,
    LOG,
    MOST_ROWS,
    PANES,
    Cursor,
    Known,
    Order,
    Pace,
    Page,
    Pane,
    Row,
    Snapshot,
    View,
    Wanted,
    id_of,
    keys,
    press,
    selected,
    steady,
    wanted,
)
from queuectl.jobs.model import Job, Queue, Rules, Worker

NOW = 1_800_000_000_000
SIZES = [(1, 1), (1, 30), (300, 1), (2, 2), (7, 3), (20, 5), (40, 10), (80, 24), (200, 60)]
STATES = ("pending", "processing", "completed", "failed", "dead", "cancelled", "blocked")
NAMED = ("up", "down", "left", "right", "pgup", "pgdn", "home", "end", "enter", "esc", "tab", "backtab", "backspace",
         "erase", "redraw", "")  # fmt: skip


def a_job(id: str, state: str = "processing", **fields: object) -> Job:
    running, over = state == "processing", state in ("completed", "dead", "cancelled")
    usual: dict[str, object] = {
        "command": f"run {id}", "queue": "default", "priority": 0, "attempts": 0, "crashes": 0, "snoozes": 0,
        "max_retries": 3, "backoff_base": 2.0, "retry_on": (), "no_retry_on": (), "timeout_seconds": None,
        "run_at": NOW - 5000, "cwd": "/tmp", "env": {}, "tags": (), "depends_on": (), "unique_key": None,
        "batch": None, "key": None, "key_limit": None, "notify": (), "created_at": NOW - 60_000,
        "updated_at": NOW - 1000,
        "started_at": NOW - 3000 if running or over else None, "finished_at": NOW - 1000 if over else None,
        "duration_ms": 2000 if over else None, "outcome": "exited" if over else None,
        "exit_code": 0 if over else None, "signal": None,
        "error": "exit code 1" if state in ("failed", "dead") else None, "stdout": None, "stderr": None,
        "progress": None, "message": None, "result": None, "parked": False,
        "log_path": "/nowhere", "worker_id": "w1" if running or over else None, "run": 1, "cancel_requested": False,
        "log_host": None,
    }  # fmt: skip
    return Job(**{"id": id, "state": state, **usual, **fields})  # type: ignore[arg-type]


def a_worker(id: str = "w1", jobs: tuple[str, ...] = (), **fields: object) -> Worker:
    usual: dict[str, object] = {
        "pid": 4711, "host": "here", "manager_pid": 1, "queues": (), "concurrency": 4, "started_at": NOW - 90_000,
        "heartbeat_at": NOW, "stop": None, "alive": True, "here": True,
    }  # fmt: skip
    return Worker(**{"id": id, "jobs": jobs, **usual, **fields})  # type: ignore[arg-type]


def a_queue(name: str, jobs: dict[str, int], paused: bool = False, at_once: int | None = None) -> Queue:
    return Queue(name, jobs, Rules(name, paused, at_once))


def counts(**some: int) -> dict[str, int]:
    return dict.fromkeys(STATES, 0) | some


def knowing(rows: Mapping[Pane, Sequence[Row]] = {}, **fields: object) -> Known:
    usual: dict[str, object] = {
        "now": NOW, "clock": "14:03:22", "counts": counts(processing=3, pending=1203), "workers": (a_worker(),),
        "pace": "12.3 jobs/s", "bars": (1.0, 2.0, 4.0),
    }  # fmt: skip
    given = {pane: tuple(some) for pane, some in rows.items()}
    return Known("~/queue.db", rows=given, **{**usual, **fields})  # type: ignore[arg-type]


def running(*ids: str) -> Known:
    return knowing({Pane.RUNNING: [a_job(id) for id in ids]})


def shown(view: View, known: Known, columns: int = 80, rows: int = 24) -> str:
    """The screen as text, once everything has settled."""
    view = settled(view, known, columns, rows)
    return "\n".join(map(str, screen.draw(view, known, columns, rows)))


def settled(view: View, known: Known, columns: int = 80, rows: int = 24) -> View:
    return screen.limit_scroll(steady(view, known, screen.frame(rows).body), known, columns, rows)


def after(view: View, known: Known, *pressed: str, columns: int = 80, rows: int = 24) -> View:
    """The view after these keys; none of them gives an order."""
    for key in pressed:
        view, order = press(settled(view, known, columns, rows), key, known, screen.frame(rows).body)
        assert order is None
    return settled(view, known, columns, rows)


# -- cells -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "cells"),
    [("", 0), ("plain", 5), ("é", 1), ("e\u0301", 1), ("日本", 4), ("🎉", 2), ("ﾊ", 1), ("\u1100\u1161", 2)],
)
def test_a_character_takes_the_cells_that_terminals_give_it(text: str, cells: int) -> None:
    assert width(text) == cells


@pytest.mark.parametrize(
    ("text", "room", "fits"),
    [("abcdef", 6, "abcdef"), ("abcdef", 5, "abcd…"), ("abcdef", 1, "a"), ("abcdef", 0, ""), ("日本語", 5, "日本…"),
     ("日本語", 4, "日…"), ("日本語", 1, "")],
)  # fmt: skip
def test_what_is_too_long_is_cut_with_a_mark(text: str, room: int, fits: str) -> None:
    assert cut(text, room) == fits


def test_of_a_path_the_end_is_kept() -> None:
    assert cut_start("/a/long/way/queue.db", 10) == "…/queue.db"


def test_a_sentence_is_broken_between_words() -> None:
    assert list(paragraph("one two three four", 9)) == ["one two", "three", "four"]
    assert list(paragraph("a verylongwordindeed", 8)) == ["a", "verylong", "wordinde", "ed"]


anything = st.text(st.characters(), max_size=60)


@settings(deadline=None)
@given(anything, st.integers(-2, 30))
def test_no_text_takes_more_room_than_it_has_nor_acts_on_the_terminal(text: str, room: int) -> None:
    pieces = [one_line(text, room), *wrapped(text, room), *paragraph(text, room)]
    for piece in pieces:
        assert piece.isprintable()
        assert width(piece) <= max(0, room)


@settings(deadline=None)
@given(st.text(st.characters(categories=["L", "N"]), max_size=60), st.integers(2, 30))
def test_wrapping_loses_nothing(text: str, room: int) -> None:
    assert "".join(wrapped(text, room)) == text


# -- lists -----------------------------------------------------------------------------------------------


def test_running_jobs_tell_how_long_which_try_who_and_what() -> None:
    job = a_job("k3f9x2m7qa", queue="mail", attempts=1, started_at=NOW - 200_000)
    text = shown(View(), knowing({Pane.RUNNING: [job]}))
    [row] = [line for line in text.splitlines() if "k3f9x2m7qa" in line]
    assert row.split() == ["k3f9x2m7qa", "3m", "20s", "mail", "2/3", "w1", "run", "k3f9x2m7qa"]


def test_columns_stand_under_their_titles_also_after_wide_characters() -> None:
    jobs = [a_job("日本語日本", queue="mail"), a_job("plain", queue="🎉🎉🎉")]
    lines = screen.draw(View(), knowing({Pane.RUNNING: jobs}), 80, 24)
    heads, *rows = lines[3:6]
    titles = {text: column for column, text, _ in heads.spans}
    for row in rows:
        starts = {column for column, *_ in row.spans}
        assert {titles["Job"], titles["Queue"], titles["Worker"], titles["Command"]} <= starts


def test_what_a_job_says_of_its_progress_is_shown_as_a_bar() -> None:
    telling = a_job("a", progress=60, message="packing")
    assert "██████░░░░  60% packing" in shown(View(), knowing({Pane.RUNNING: [telling]}), 120)
    assert "Progress" not in shown(View(), running("a"), 120)


@pytest.mark.parametrize(
    ("job", "workers", "words"),
    [
        (a_job("j", "pending"), [], "a worker"),
        (a_job("j", "pending"), [a_worker(alive=False)], "a worker"),
        (a_job("j", "pending"), [a_worker(stop="drain")], "a worker"),
        (a_job("j", "pending", queue="mail"), [a_worker(queues=("other",))], "a worker"),
        (a_job("j", "pending"), [a_worker(jobs=("a",), concurrency=1)], "a free slot"),
        (a_job("j", "pending"), [a_worker()], "its turn"),
        (a_job("j", "pending", run_at=NOW + 60_000), [], "in 1m"),
        (a_job("j", "failed", run_at=NOW + 3500), [], "retry in 4s"),
        (a_job("j", "blocked", depends_on=(("build", "ok"),)), [], "job build"),
        (a_job("j", "blocked", depends_on=(("a", "ok"), ("b", "any"))), [], "2 jobs"),
        (a_job("j", "pending", queue="slow"), [a_worker()], "queue is paused"),
    ],
)
def test_waiting_jobs_tell_what_for(job: Job, workers: list[Worker], words: str) -> None:
    queues = (a_queue("slow", counts(pending=1), paused=True), a_queue("mail", counts(pending=1)))
    known = knowing({Pane.WAITING: [job]}, workers=tuple(workers), queues=queues)
    assert f" {words}  " in shown(View(Pane.WAITING), known)


def test_failed_jobs_tell_why_and_finished_ones_how_long_they_took() -> None:
    jobs = {Pane.FAILED: [a_job("bad", "dead", attempts=3)], Pane.FINISHED: [a_job("good", "completed")]}
    bad = shown(View(Pane.FAILED), knowing(jobs), 100)
    assert "exit code 1" in bad
    assert "3/3" in bad
    good = shown(View(Pane.FINISHED), knowing(jobs))
    assert "completed" in good
    assert " 2s " in good


def test_queues_tell_their_counts_and_what_holds_them_back() -> None:
    queues = [a_queue("mail", counts(pending=1200, dead=3)), a_queue("slow", counts(), True, 2)]
    text = shown(View(Pane.QUEUES), knowing({Pane.QUEUES: queues}), 100)
    assert "1,200" in text
    assert "paused" in text
    assert "2 at once" in text
    plain = shown(View(Pane.QUEUES), knowing({Pane.QUEUES: queues[:1]}), 100)
    assert "Paused" not in plain


def test_workers_tell_their_state_and_their_jobs() -> None:
    workers = [a_worker("w1", ("a", "b")), a_worker("w2", alive=False), a_worker("w3", queues=("mail",))]
    text = shown(View(Pane.WORKERS), knowing({Pane.WORKERS: workers}))
    for words in ("busy", "2/4", "a b", "lost", "idle", "mail"):
        assert words in text


def test_a_lost_worker_stands_out_in_what_it_ran() -> None:
    known = knowing({Pane.RUNNING: [a_job("a")]}, workers=(a_worker(alive=False),))
    styles = {text: style for line in screen.draw(View(), known, 80, 24) for _, text, style in line.spans}
    assert styles["w1"] == "lost"


def test_a_narrow_screen_leaves_out_columns_and_keeps_the_job_and_its_command() -> None:
    text = shown(View(), running("k3f9x2m7qa"), 40, 10)
    assert "k3f9x2m7qa" in text
    assert "run k3f9x2m7qa" in text
    assert "Elapsed" in text
    assert "Worker" not in text.splitlines()[2]
    assert "q quit" in text
    assert "c cancel" in text


def test_an_empty_pane_says_what_to_do() -> None:
    empty: dict[Pane, Sequence[Row]] = dict.fromkeys(PANES, ())
    assert "queuectl enqueue 'echo hello'" in shown(View(), knowing(empty, counts=counts()))
    assert "1,203 jobs cannot run without a worker" in shown(View(), knowing(empty, workers=()))
    assert "Nothing is running." in shown(View(), knowing(empty))
    assert "queuectl worker start" in shown(View(Pane.WORKERS), knowing(empty))
    assert "Esc shows all" in shown(View(filter="x"), knowing(empty))


def test_what_has_not_been_read_yet_is_not_called_empty() -> None:
    assert "Nothing" not in shown(View(), knowing())


# -- around the list -------------------------------------------------------------------------------------


def test_the_header_tells_how_it_goes() -> None:
    first, second, *_ = shown(View(), running("a")).splitlines()
    for words in ("~/queue.db", "12.3 jobs/s", "1 worker", "0/4 busy", "14:03:22", "▂▄█"):
        assert words in first
    assert "pending 1,203" in second


def test_where_there_is_little_room_the_pace_stays_the_longest() -> None:
    first = shown(View(), running("a"), 40, 10).splitlines()[0]
    assert "12.3 jobs/s" in first
    assert "0/4 busy" in first
    assert "queue.db" in first


@pytest.mark.parametrize(
    ("name", "room", "short"),
    [
        ("~/.local/share/queuectl/queue.db", 40, "~/.local/share/queuectl/queue.db"),
        ("~/.local/share/queuectl/queue.db", 20, "…/queuectl/queue.db"),
        ("~/.local/share/queuectl/queue.db", 12, "…/queue.db"),
        ("~/.local/share/queuectl/queue.db", 6, "…ue.db"),
        ("postgresql://me@db.example.net/queue", 30, "me@db.example.net/queue"),
        ("postgresql://me@db.example.net/queue", 10, "…/queue"),
        ("queue.db", 0, ""),
    ],
)
def test_a_long_name_keeps_its_end(name: str, room: int, short: str) -> None:
    assert screen._short_name(name, room) == short


def test_trouble_takes_the_header_and_the_list_stays() -> None:
    known = replace(running("k3f9x2m7qa"), trouble="Trying again: " + "no database " * 10)
    for rows, told in ((24, 2), (10, 1)):
        lines = shown(View(), known, 80, rows).splitlines()
        assert lines[0].strip().startswith("Trying again: no database no")
        assert "Running" in lines[told]
        assert "k3f9x2m7qa" in "\n".join(lines[told:])


def test_wide_screens_count_in_the_tabs() -> None:
    assert "2 Waiting 1203" in shown(View(), running("a"), 120)
    assert "2 Waiting 12k" in shown(View(), replace(running("a"), counts=counts(pending=12_345)), 120)
    assert "2 Waiting  3 Failed" in shown(View(), running("a"))


def test_the_selected_row_is_told_of_all_there_are() -> None:
    known = knowing({Pane.WAITING: [a_job(f"j{n}", "pending") for n in range(40)]})
    assert "2 of 1,203" in shown(after(View(Pane.WAITING), known, "down"), known)
    assert "1 of 11" in shown(View(Pane.WAITING, filter="j3"), known)


def test_the_bottom_line_shows_the_keys_that_work() -> None:
    rows: dict[Pane, Sequence[Row]]
    rows = {Pane.RUNNING: [a_job("a")], Pane.FAILED: [a_job("b", "dead")], Pane.FINISHED: [a_job("c", "completed")],
            Pane.QUEUES: [a_queue("q", counts())]}  # fmt: skip

    def last(view: View) -> str:
        return shown(view, knowing(rows)).splitlines()[-1]

    assert "c cancel" in last(View())
    assert "r retry" not in last(View())
    assert "r retry" in last(View(Pane.FAILED))
    assert "c cancel" not in last(View(Pane.FAILED))
    for word in ("cancel", "retry"):
        assert word not in last(View(Pane.FINISHED))
    assert "log" not in last(View(Pane.QUEUES))
    for pane in PANES:
        assert last(View(pane)).endswith("? help  q quit")


def test_a_note_takes_the_bottom_line() -> None:
    assert shown(View(), replace(running("a"), note="Job a cancelled.")).splitlines()[-1] == " Job a cancelled."


# -- selecting -------------------------------------------------------------------------------------------


def test_the_selection_stays_on_its_job_when_rows_move() -> None:
    known = running("a", "b", "c")
    view = after(View(), known, "down")
    assert id_of(selected(view, known)) == "b"  # type: ignore[arg-type]
    moved = running("x", "y", "a", "b", "c")
    assert id_of(selected(settled(view, moved), moved)) == "b"  # type: ignore[arg-type]
    gone = running("x", "y", "c")
    view = settled(settled(view, moved), gone)
    assert id_of(selected(view, gone)) == "c"  # type: ignore[arg-type]


def test_the_first_row_too_stays_selected_unless_the_newest_come_first() -> None:
    for pane, stays in ((Pane.WAITING, True), (Pane.FINISHED, False)):
        before = knowing({pane: [a_job("a", "completed")]})
        afterwards = knowing({pane: [a_job("new", "completed"), a_job("a", "completed")]})
        view = settled(settled(View(pane), before), afterwards)
        assert (id_of(selected(view, afterwards)) == "a") is stays  # type: ignore[arg-type]


def test_the_selected_row_is_always_in_sight() -> None:
    known = running(*(f"j{n:03d}" for n in range(100)))
    view = View()
    for key in ("end", "pgup", "up", "home", "pgdn", "down", "pgdn", "G", "k", "g"):
        view = after(view, known, key)
        [row] = [line for line in screen.draw(view, known, 80, 24) if line.fill == "selected"]
        assert id_of(selected(view, known)) in str(row)  # type: ignore[arg-type]


def test_the_end_stays_the_end_when_more_rows_come() -> None:
    view = after(View(), running("a", "b"), "end")
    assert id_of(selected(settled(view, running("a", "b", "c")), running("a", "b", "c"))) == "c"  # type: ignore[arg-type]


def test_few_rows_are_read_until_somebody_goes_beyond_them() -> None:
    known = running(*(f"j{n:03d}" for n in range(50)))
    assert wanted(View(), 20).limit == 40
    assert wanted(View(), 10_000).limit == MOST_ROWS
    assert wanted(View(filter="x"), 20).limit == MOST_ROWS
    assert wanted(after(View(), known, "pgdn", "pgdn"), 20).limit == MOST_ROWS
    assert wanted(View(cursors={Pane.RUNNING: Cursor("", BOTTOM)}), 20).limit == MOST_ROWS


def test_each_pane_has_a_selection_of_its_own() -> None:
    known = knowing({Pane.RUNNING: [a_job("a"), a_job("b")], Pane.WAITING: [a_job("c"), a_job("d")]})
    view = after(View(), known, "down", "2", "down", "1")
    assert id_of(selected(view, known)) == "b"  # type: ignore[arg-type]
    assert id_of(selected(after(view, known, "tab"), known)) == "d"  # type: ignore[arg-type]


def test_tab_goes_round() -> None:
    view, seen = View(), []
    for _ in PANES:
        view = after(view, knowing(), "tab")
        seen.append(view.pane)
    assert seen == [*PANES[1:], PANES[0]]
    assert after(view, knowing(), "backtab").pane == PANES[-1]


# -- filtering -------------------------------------------------------------------------------------------


def test_typing_a_filter_narrows_the_list_at_once() -> None:
    known = knowing({Pane.RUNNING: [a_job("alpha"), a_job("beta"), a_job("gamma", queue="ALP")]})
    view = after(View(), known, "/", "A", "l", "p", "q")
    assert view.filter == "Alpq"
    view = after(view, known, "backspace")
    text = shown(view, known)
    assert "run alpha" in text
    assert "run gamma" in text  # by its queue
    assert "run beta" not in text
    assert "/Alp▏" in text
    kept = after(view, known, "enter")
    assert (kept.typing, kept.filter) == (False, "Alp")
    assert "/Alp  Enter job" in shown(kept, known)
    assert after(kept, known, "esc").filter == ""
    assert after(view, known, "esc") == after(View(), known)


def test_keys_are_letters_while_a_filter_is_typed() -> None:
    assert after(View(), running("a"), "/", "q", "c", "?", "1").filter == "qc?1"


# -- acting ----------------------------------------------------------------------------------------------


def test_a_cancel_is_asked_for_and_carried_out_on_yes_only() -> None:
    known = running("a", "b")
    asked = after(View(), known, "down", "c")
    assert "Cancel job b, ending its processes?  y yes  n no" in shown(asked, known)
    for key in ("n", "esc", "q", "x", "enter", " ", "up"):
        assert press(asked, key, known, 20) == (replace(asked, question=None), None)
    assert press(asked, "y", known, 20) == (replace(asked, question=None), Order("cancel", "b"))


def test_the_question_is_about_the_job_that_was_selected_when_it_was_asked() -> None:
    asked = after(View(Pane.FINISHED), knowing({Pane.FINISHED: [a_job("a", "dead")]}), "r")
    later = knowing({Pane.FINISHED: [a_job("new", "dead"), a_job("a", "dead")]})
    asked = settled(asked, later)
    assert "Run dead job a again?" in shown(asked, later)
    assert press(asked, "y", later, 20)[1] == Order("retry", "a")


@pytest.mark.parametrize("state", STATES)
def test_only_what_can_be_done_to_a_job_is_asked(state: str) -> None:
    known = knowing({Pane.RUNNING: [a_job("a", state)]})
    assert bool(after(View(), known, "c").question) is (state in ("pending", "processing", "failed", "blocked"))
    assert bool(after(View(), known, "r").question) is (state == "dead")


def test_a_question_is_seen_however_small_the_screen_is() -> None:
    known = running("k3f9x2m7qa")
    asked = after(View(), known, "c")
    for columns, rows in ((40, 10), (40, 2), (40, 1)):
        text = shown(asked, known, columns, rows)
        assert "Cancel job k3f9x2m7qa?" in text
        assert "y yes" in text


def test_q_quits_from_the_list_and_goes_back_elsewhere() -> None:
    known = running("a")
    assert press(View(), "q", known, 20)[1] == Order("quit")
    for key in ("enter", "l", "?"):
        view = after(View(), known, key)
        assert view.page
        for back in ("q", "esc"):
            assert shown(after(view, known, back), known) == shown(View(), known)


# -- pages -----------------------------------------------------------------------------------------------


def reading(job: Job, *log: str, **fields: object) -> Known:
    page = Page(job.id, job, ("It is running.",), log, **fields)  # type: ignore[arg-type]
    return replace(knowing({Pane.RUNNING: [job]}), page=page)


def test_enter_shows_the_job_why_and_its_last_output() -> None:
    known = reading(a_job("a", command="first line\nsecond line"), *(f"line {n}" for n in range(100)))
    text = shown(after(View(), known, "enter"), known)
    for words in ("Job a", "processing", "first line", "second line", "It is running.", "worker w1", "line 99"):
        assert words in text
    assert "line 50" not in text


def test_what_was_read_of_another_job_is_not_shown() -> None:
    known = replace(reading(a_job("a"), "secret"), rows={Pane.RUNNING: (a_job("b"),)})
    for key in ("enter", "l"):
        text = shown(after(View(), known, key), known)
        assert "secret" not in text
        assert "run a" not in text


def test_a_job_that_is_gone_is_said_to_be() -> None:
    known = replace(running("a"), page=Page("a", None))
    assert "no job a any more" in shown(after(View(), known, "enter"), known)


def test_a_log_is_followed_until_one_scrolls_and_again_at_its_end() -> None:
    known = reading(a_job("a"), *(f"line {n}" for n in range(100)))
    view = after(View(), known, "l")
    assert wanted(view, 20) == Wanted(Pane.RUNNING, 40, "a", True)
    text = shown(view, known)
    assert "line 99" in text
    assert "following" in text
    up = after(view, known, "up")
    assert "line 99" not in shown(up, known)
    assert "line 98" in shown(up, known)
    assert not wanted(up, 20).log  # what one reads must not run away
    assert "line 0" in shown(after(up, known, "home"), known)
    assert shown(after(up, known, "end"), known) == text
    assert shown(after(up, known, *["down"] * 5), known) == text


def test_a_scrolled_log_stays_while_the_job_goes_on() -> None:
    known = reading(a_job("a"), "old")
    over = a_job("a", "completed")
    news = Snapshot(Wanted(Pane.RUNNING, 1, "a", False), NOW, counts(), (), (), page=Page("a", over))
    assert known.told(news).page == Page("a", over, log=("old",))


def test_long_lines_of_a_log_are_wrapped_and_nobody_scrolls_past_its_start() -> None:
    known = reading(a_job("a"), "x" * 200)
    view = after(View(), known, "l", "home", "pgup", columns=80, rows=8)
    lines = shown(view, known, 80, 8).splitlines()
    assert [len(line) for line in lines[2:-1] if line] == [80, 80, 40]
    assert view.scroll == 0


def test_a_log_shows_what_a_terminal_would_have_in_the_end() -> None:
    known = reading(a_job("a"), " 10%\r 50%\r100%\r", "\x1b[1;31mred\x1b[0m \x1b[2J")
    text = shown(after(View(), known, "l"), known)
    assert "100%" in text
    assert "50%" not in text
    assert "red \\x1b[2J" in text


def test_a_log_that_is_elsewhere_says_so() -> None:
    known = reading(a_job("a"), "the end of it", remark="It ran on far, which has its log: /x")
    text = shown(after(View(), known, "l"), known)
    assert "the end of it" in text
    assert "It ran on far" in text


def test_back_from_a_log_goes_where_one_came_from() -> None:
    known = reading(a_job("a"), "text")
    assert after(View(), known, "enter", "l").pages == (JOB, LOG)
    assert after(View(), known, "enter", "l", "q").pages == (JOB,)
    assert after(View(), known, "l", "enter").pages == (JOB,)
    assert after(View(), known, "l", "?").pages == (LOG, HELP)


def test_a_workers_row_leads_to_its_job() -> None:
    known = knowing({Pane.WORKERS: [a_worker(jobs=("a", "b"))]})
    assert after(View(Pane.WORKERS), known, "enter").job == "a"
    idle = knowing({Pane.WORKERS: [a_worker()]})
    assert not after(View(Pane.WORKERS), idle, "enter").page


def test_jobs_can_be_cancelled_and_retried_from_their_pages() -> None:
    known = reading(a_job("a"))
    assert after(View(), known, "l", "c").question == Order("cancel", "a")
    known = reading(a_job("a", "dead"))
    assert after(View(), known, "enter", "r").question == Order("retry", "a")


# -- the pace --------------------------------------------------------------------------------------------


def test_the_pace_is_what_has_finished_between_the_looks() -> None:
    pace = Pace()
    assert str(pace) == ""
    for second in range(30):
        pace.see(second, counts(completed=1000 + 5 * second, dead=second))
    assert str(pace) == "6.0 jobs/s"
    assert pace.bars[-3:] == (6.0, 6.0, 6.0)
    for second in range(30, 60):
        pace.see(second, counts(completed=1145, dead=29))
    assert str(pace) == "177 jobs/min"  # 29 * 6 of them in the last minute


def test_a_prune_or_a_retry_is_no_negative_pace() -> None:
    pace = Pace()
    for second, done in enumerate((5000, 0, 10, 20)):
        pace.see(second, counts(completed=done))
    assert str(pace) == "6.7 jobs/s"


# -- anything at all -------------------------------------------------------------------------------------

hostile = st.text(st.characters(), min_size=1, max_size=40)
some_jobs = st.builds(
    lambda name, state, command, queue, error, priority, ahead: a_job(
        name, state, command=command, queue=queue, error=error, priority=priority, run_at=NOW + ahead
    ),
    hostile, st.sampled_from(STATES), hostile, hostile, st.none() | hostile, st.integers(-10**9, 10**9),
    st.integers(-10**12, 10**12),
)  # fmt: skip
some_workers = st.builds(
    lambda name, jobs, host, alive: a_worker(name, tuple(jobs), host=host, alive=alive),
    hostile, st.lists(hostile, max_size=3), hostile, st.booleans(),
)  # fmt: skip
some_queues = st.builds(
    lambda name, n, paused, limit: a_queue(name, counts(pending=n), paused, limit),
    hostile, st.integers(0, 10**12), st.booleans(), st.none() | st.integers(1, 10**9),
)  # fmt: skip


@st.composite
def some_known(draw: st.DrawFn) -> Known:
    rows: dict[Pane, Sequence[Row]] = {}
    for pane in draw(st.sets(st.sampled_from(PANES))):
        kind = {Pane.QUEUES: some_queues, Pane.WORKERS: some_workers}.get(pane, some_jobs)
        rows[pane] = draw(st.lists(kind, max_size=6, unique_by=id_of))  # type: ignore[arg-type]
    job = draw(st.none() | some_jobs)
    lines = tuple(draw(st.lists(st.text(st.characters(), max_size=100), max_size=8)))
    chosen = draw(
        st.sampled_from([job.id if job else "gone", *(id_of(row) for some in rows.values() for row in some)])
    )
    return replace(
        knowing(rows),
        name=draw(hostile),
        note=draw(st.just("") | hostile),
        trouble=draw(st.just("") | hostile),
        workers=tuple(draw(st.lists(some_workers, max_size=2))),
        page=Page(chosen, job, tuple(draw(st.lists(hostile, max_size=2))), lines, draw(st.just("") | hostile)),
    )


some_keys = st.lists(
    st.sampled_from([*NAMED, *"123456jkgGlcryn/?q ayxé日"]) | hostile.map(lambda text: text[0]), max_size=25
)
some_size = st.sampled_from(SIZES) | st.tuples(st.integers(1, 120), st.integers(1, 40))


def check_screen(view: View, known: Known, columns: int, rows: int) -> None:
    lines = screen.draw(view, known, columns, rows)
    assert len(lines) == rows
    for line in lines:
        for column, text, _ in line.spans:
            assert all(not unicodedata.category(c).startswith("C") for c in text), repr(text)
            assert column >= 0
            assert column + width(text) <= columns, (view, column, text)


@settings(deadline=None, max_examples=300)
@given(some_known(), some_keys, st.lists(some_size, min_size=1, max_size=4))
def test_no_key_no_size_and_no_data_breaks_the_screen(
    known: Known, pressed: list[str], sizes: list[tuple[int, int]]
) -> None:
    view = View()
    for number, key in enumerate(pressed or [""]):
        columns, rows = sizes[number % len(sizes)]
        view = settled(view, known, columns, rows)
        check_screen(view, known, columns, rows)
        assert keys(view, known)
        assert 1 <= wanted(view, screen.frame(rows).body).limit <= MOST_ROWS
        view, order = press(view, key, known, screen.frame(rows).body)
        assert order is None or order.what in ("quit", "cancel", "retry", "redraw")
    for columns, rows in sizes:
        check_screen(settled(view, known, columns, rows), known, columns, rows)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pane", PANES)
def test_every_pane_and_page_can_be_drawn_at_every_size(pane: Pane, size: tuple[int, int]) -> None:
    rows: dict[Pane, Sequence[Row]] = {pane: [a_job(f"j{n}", "dead") for n in range(100)] for pane in PANES}
    rows |= {Pane.QUEUES: [a_queue("q", counts())] * 3, Pane.WORKERS: [a_worker(jobs=("a",))] * 3}
    known = replace(knowing(rows), page=Page("j0", a_job("j0"), ("Because.",), ("text " * 100,) * 200))
    for pressed in ([], ["enter"], ["l"], ["l", "up"], ["?"], ["c"], ["/", "j"], ["end"]):
        check_screen(after(View(pane), known, *pressed, columns=size[0], rows=size[1]), known, *size)


def test_a_line_is_as_wide_as_it_looks() -> None:
    line = Line()
    assert line.put(2, "日本", "") == 6
    line.put(8, "x")
    assert str(line) == "  日本  x"
