"""Dead jobs, queues, schedules, workers, settings and the audit, as somebody sees them in a browser."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from queuectl.jobs import dead_letters
from queuectl.jobs.lifecycle import Exited
from queuectl.jobs.model import Report
from queuectl.store import Store
from queuectl.web.auth import Role, User
from queuectl.web.pages import dlq, schedules
from queuectl.web.rendering import Ask, draw
from tests.conftest import DEADLINE, eventually
from tests.contract.conftest import FakeWorker
from tests.e2e.conftest import Cli
from tests.web.conftest import Served, enqueue, login

expect.set_options(timeout=DEADLINE * 1000)

MARKUP = """<img src=x onerror="document.title='owned'"></td>'"&amp;"""
TURNS = itertools.count(1)  # what dies next runs before all that waits
PAGES = ("/dead", "/queues", "/schedules", "/schedules/nightly", "/workers", "/settings", "/audit")


def dies(store: Store, command: str, stderr: str, queue: str = "default", code: int = 1) -> str:
    """A job that ran and is dead."""
    id = enqueue(store, command, queue=queue, max_retries=1, priority=next(TURNS))
    worker = FakeWorker(store, "w1", (queue,))
    assert worker.settle(worker.claim_one(), Exited(code), Report(stderr=stderr))
    store.unregister("w1")
    worker.leave()
    return id


def press(page: Page, button: Locator, said: str | re.Pattern[str]) -> None:
    """Press a button, say yes if the page asks, and see what came of it."""
    button.click()
    yes = page.locator('dialog[open] button[value="yes"]')
    told = page.get_by_role("status").filter(has_text=said)
    expect(yes.or_(told).first).to_be_visible()
    if yes.is_visible():
        yes.click()
    expect(told).to_be_visible()


def is_only_text(page: Page, text: str = MARKUP, times: int = 1) -> None:
    """It is there, and no more than what it says."""
    eventually(lambda: page.locator("main").inner_text().count(text) >= times, text)
    expect(page.locator("main img, main script")).to_have_count(0)
    assert page.title() != "owned"


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_text(name, exact=True))


@contextmanager
def tab(chromium: Browser, served: Served, role: str, javascript: bool = True) -> Iterator[Page]:
    context = chromium.new_context(base_url=served.url, java_script_enabled=javascript)
    context.set_default_timeout(DEADLINE * 1000)
    page = context.new_page()
    login(page, served, role)
    yield page
    context.close()


def test_dead_jobs_are_grouped_retried_and_deleted(
    page: Page, chromium: Browser, served: Served, store: Store
) -> None:
    page.goto("/dead")
    expect(page.get_by_text("Nothing is dead.")).to_be_visible()
    old, middle, new = (dies(store, f"send {n} {MARKUP}", f"no host {n}\n{MARKUP} {n}", "mail") for n in range(3))
    other = dies(store, "resize", "out of memory", code=9)
    page.goto("/dead")
    groups = page.locator("article")
    expect(groups).to_have_count(2)
    expect(groups.nth(0)).to_contain_text("exit code 1")
    expect(groups.nth(0)).to_contain_text("3 jobs")
    expect(groups.nth(0).locator(".example")).to_contain_text(f"send 2 {MARKUP}")
    expect(groups.nth(0).get_by_role("link", name="mail")).to_have_attribute(
        "href", "/jobs?q=queue%3Amail%20state%3Adead"
    )
    is_only_text(page, times=2)

    groups.nth(0).get_by_role("heading").get_by_role("link").click()
    page.wait_for_url("**/dead?group=*")
    is_only_text(page, times=6)
    press(page, page.get_by_role("button", name=f"Retry {middle}"), "1 job is pending again.")
    expect(page.get_by_role("link", name=old)).to_be_visible()
    expect(page.get_by_role("link", name=middle)).to_have_count(0)
    assert store.views.states([old, middle, new]) == {old: "dead", middle: "pending", new: "dead"}

    with tab(chromium, served, "operator", javascript=False) as still:
        still.goto(page.url)
        late = dies(store, "send 4", f"{MARKUP} 4", "mail")
        store.retry([old])
        still.get_by_role("button", name="Retry all 2").click()
        expect(still.get_by_role("status")).to_have_text("1 job is pending again. 1 was not dead any more.")
    assert store.views.states([old, new, late]) == {old: "pending", new: "pending", late: "dead"}

    page.goto("/dead")
    resize = page.locator("article").filter(has_text="out of memory")
    button = resize.get_by_role("button", name="Delete")
    expect(button).to_have_attribute("data-confirm", "Delete 1 dead job for good, with history and logs?")
    press(page, button, "1 job deleted.")
    expect(page.locator("article")).to_have_count(1)
    assert store.views.states([other]) == {}


def test_only_the_newest_are_grouped_and_that_is_said(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "GROUPED", 3)
    monkeypatch.setattr(dlq, "ON_A_PAGE", 2)
    ids = [dies(store, "false", "the same") for _ in range(5)]
    ask = Ask(User("ann", Role.ADMIN))
    text = draw(dlq.show(store, ask), ask, "", live=False)
    assert "Grouped by the newest 3 of 5." in text
    assert f'name="ids" value="{" ".join(ids[:1:-1])}"' in text
    [group] = set(re.findall(r"/dead\?group=(\w+)", text))
    for number, there in (("1", ids[4:2:-1]), ("2", [ids[2]]), ("9", []), ("x", ids[4:2:-1])):
        ask = Ask(User("ann", Role.ADMIN), query={"group": group, "page": number})
        text = draw(dlq.show(store, ask), ask, "", live=False)
        assert re.findall(r'<a class="id" href="/jobs/(\w+)"', text) == there
    assert dlq.delete(store, ask, {"ids": []}).said == "0 jobs deleted."
    assert store.views.counts()["dead"] == 5


def test_queues_are_paused_limited_and_their_retries_ruled(page: Page, store: Store) -> None:
    page.goto("/queues")
    expect(page.get_by_text("There are no queues yet.")).to_be_visible()
    enqueue(store, queue="mail")
    dies(store, "false", "", queue="a+b")
    page.goto("/queues")
    mail = row(page, "mail")
    expect(mail.get_by_role("cell")).to_have_text(
        ["1", "0", "0", "0", "0", re.compile(r"\d"), "none", "as jobs say", re.compile("Pause")]
    )
    expect(page.get_by_role("link", name="a+b", exact=True)).to_have_attribute("href", "/jobs?q=queue%3Aa%2Bb")
    press(page, mail.get_by_role("button", name="Pause"), "Queue mail is paused.")
    expect(row(page, "mail")).to_contain_text("paused")
    assert store.attendance()[1] == {"mail"}
    press(page, page.get_by_role("button", name="Resume mail"), "Queue mail goes on.")
    assert store.attendance()[1] == set()

    page.get_by_role("link", name="Limits of mail").click()
    page.get_by_label("At once").fill("3")
    page.get_by_label("Rate").fill("10")
    page.get_by_label("Retry only after").fill(f"1, {MARKUP}")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text('cannot stand in "retry_on"')
    expect(page.get_by_label("Retry only after")).to_have_value(f"1, {MARKUP}")
    is_only_text(page, '"<img"')
    page.get_by_label("Retry only after").fill("1, sigterm")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("A rate needs a number and a time.")
    expect(page.get_by_label("At once")).to_have_value("3")
    assert store.views.queues()[1].rules.at_once is None
    page.get_by_label("Per", exact=True).fill("90m")
    said = "Queue mail: 3 at once, 10 per 1h 30m; retries only after 1 SIGTERM."
    press(page, page.get_by_role("button", name="Save"), said)
    expect(row(page, "mail")).to_contain_text("0/3")

    page.get_by_role("link", name="Limits of mail").click()
    expect(page.get_by_label("Per", exact=True)).to_have_value("1h 30m")
    for label in ("At once", "Rate", "Per"):
        page.get_by_label(label, exact=True).fill("")
    press(page, page.get_by_role("button", name="Save"), "Queue mail: no limits; retries only after 1 SIGTERM.")
    assert [act.detail for act in store.views.acts(limit=1)] == ["at_once = None, rate = None, rate_ms = None"]

    page.get_by_label("Limit a queue before its first job comes:").fill("later")
    page.get_by_role("button", name="Limits", exact=True).click()
    expect(page.get_by_text("No job has been in this queue yet.")).to_be_visible()
    page.get_by_label("Per key").fill("2")
    press(page, page.get_by_role("button", name="Save"), "Queue later: 2 per key")


def test_schedules_are_made_shown_changed_run_paused_and_removed(page: Page, store: Store) -> None:
    page.goto("/schedules")
    expect(page.get_by_text("There are no schedules yet.")).to_be_visible()
    page.get_by_role("link", name="New schedule").click()
    command = f"echo '{MARKUP}'\necho two"
    page.get_by_label("Name").fill("nightly")
    page.get_by_label("Cron").fill("30 2 * * *")
    page.get_by_label("Or every").fill("1h")
    page.get_by_label("Zone").fill("Europe/Berlin")
    page.get_by_label("Command").fill(command)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("fill in Cron or Every")
    expect(page.get_by_label("Command")).to_have_value(command)
    page.get_by_label("Or every").fill("")
    page.get_by_label("Priority").fill(MARKUP)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("is no priority")
    is_only_text(page)
    page.get_by_label("Priority").fill("5")
    page.get_by_label("Missed").select_option("all")
    page.get_by_role("button", name="Preview").click()
    preview = page.locator("#preview")
    expect(preview).to_contain_text("at 02:30 every day")
    expect(preview.get_by_role("row")).to_have_count(6)
    expect(preview.get_by_role("row").nth(5)).to_contain_text(re.compile(r"02:30:00 CES?T.*0[01]:30:00 UTC"))
    assert store.schedules.all() == []
    press(
        page,
        page.get_by_role("button", name="Save"),
        re.compile("Schedule nightly: at 02:30 every day. Next: .* 02:30"),
    )

    page.wait_for_url("**/schedules/nightly")
    is_only_text(page)
    expect(page.get_by_role("region", name="Next firings").get_by_role("row")).to_have_count(6)
    expect(page.get_by_text("It has not fired yet.")).to_be_visible()
    [(made, _)] = store.schedules.all()
    assert (made.job["command"], made.job["priority"], made.missed) == (command, 5, "all")
    press(page, page.get_by_role("button", name="Run now"), re.compile("Enqueued [a-z2-7]{10}."))
    [fired] = store.schedules.firings("nightly")
    expect(page.get_by_role("region", name="Last firings")).to_contain_text("triggered")
    expect(page.get_by_role("link", name=fired.job)).to_have_attribute("href", f"/jobs/{fired.job}")
    press(page, page.get_by_role("button", name="Pause"), "Schedule nightly is paused.")
    expect(page.get_by_text("None until it is resumed.")).to_be_visible()

    store.schedules.add(
        "nightly", "30 2 * * *", None, "Europe/Berlin", {**made.job, "tags": ["<b>", "eu"]}, replace_it=True
    )
    page.get_by_role("link", name="Change").click()
    expect(page.get_by_text('["<b>", "eu"]')).to_be_visible()
    expect(page.get_by_label("Command")).to_have_value(command)
    page.get_by_label("Cron").fill("0 25 * * *")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text('"25" is not an hour')
    page.get_by_label("Cron").fill("")
    page.get_by_label("Or every").fill("90s")
    press(page, page.get_by_role("button", name="Save"), "Schedule nightly: every 1m 30s. It is paused.")
    changed = store.schedules.get("nightly")
    assert (changed.every_ms, changed.job["tags"], changed.job["cwd"]) == (90_000, ["<b>", "eu"], made.job["cwd"])

    page.goto("/schedules")
    is_only_text(page)
    nightly = row(page, "nightly")
    expect(nightly).to_contain_text("every 1m 30s")
    expect(nightly.get_by_role("link", name="triggered")).to_have_attribute("href", f"/jobs/{fired.job}")
    press(page, nightly.get_by_role("button", name="Resume"), "Schedule nightly goes on. Next:")
    page.get_by_role("link", name="nightly").click()
    remove = page.get_by_role("button", name="Remove")
    expect(page.locator("form[data-confirm]").filter(has=remove)).to_have_count(1)
    press(page, remove, "Schedule nightly removed. Its jobs stay.")
    assert store.schedules.all() == []


def test_a_name_that_is_taken_is_told_in_the_form_and_a_schedule_may_be_called_new(page: Page, store: Store) -> None:
    store.schedules.add("new", None, 60, "UTC", {"command": "true"})
    page.goto("/schedules")
    page.get_by_role("link", name="new", exact=True).click()
    expect(page.get_by_role("heading", level=1, name="new", exact=True)).to_be_visible()
    press(page, page.get_by_role("button", name="Pause"), "Schedule new is paused.")
    expect(page.get_by_role("heading", level=1, name="new", exact=True)).to_be_visible()
    page.goto("/schedules/new")
    page.get_by_label("Name").fill("new")
    page.get_by_label("Or every").fill("10m")
    page.get_by_label("Command").fill("true")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("choose another name, or change that one")
    expect(page.get_by_label("Or every")).to_have_value("10m")


def test_a_zone_that_is_not_known_here_spoils_no_page(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.schedules.add("far", "0 1 * * *", None, "Asia/Tokyo", {"command": "true"})
    monkeypatch.setattr("queuectl.schedules.cron.find_zone", lambda name: None)
    ask = Ask(User("ann", Role.VIEWER), {"name": "far"})
    for show in (schedules.show_all, schedules.show_one):
        assert "there is no time zone" in draw(show(store, ask), ask, "", live=False)


def test_workers_are_shown_drained_and_stopped(page: Page, store: Store, cli: Cli) -> None:
    page.goto("/workers")
    expect(page.get_by_text("queuectl worker start")).to_be_visible()
    store.register("lost", pid=2**22 + 1, host=MARKUP, manager_pid=1, queues=("mail=2", "other"), concurrency=4)
    page.goto("/workers")
    is_only_text(page)
    expect(row(page, "lost")).to_contain_text("mail=2 other")
    expect(row(page, "lost").get_by_role("button")).to_have_count(0)
    expect(page.get_by_text("The jobs are put back by the next worker that starts")).to_be_visible()
    first = enqueue(store, "while [ ! -e go ]; do sleep 0.05; done", cwd=str(cli.folder))
    try:
        cli.ok("worker", "start", "--concurrency", "2")
        [worker] = eventually(lambda: [one for one in store.views.workers() if one.jobs])
        page.goto("/workers")
        busy = row(page, worker.id)
        expect(busy).to_contain_text("1/2")
        expect(busy.get_by_role("link", name=first)).to_have_attribute("href", f"/jobs/{first}")
        drain = busy.locator("form").filter(has_text="Drain")
        expect(drain).to_have_attribute("data-confirm", f"Let worker {worker.id} finish its jobs and leave?")
        press(page, drain.get_by_role("button"), "Told 1 worker to leave when their running jobs have finished.")
        expect(row(page, worker.id)).to_contain_text("stopping")
        expect(row(page, worker.id).get_by_role("button")).to_have_count(1)
        (cli.folder / "go").touch()
        eventually(lambda: worker.id not in [one.id for one in store.views.workers()])
        assert store.views.states([first]) == {first: "completed"}

        (cli.folder / "go").unlink()
        again = [enqueue(store, "while [ ! -e go ]; do sleep 0.05; done", cwd=str(cli.folder)) for _ in range(2)]
        cli.ok("worker", "start", "--count", "2")
        eventually(lambda: len(store.views.running(9)) == 2)
        page.goto("/workers")
        press(page, page.get_by_role("button", name="Stop all 2 now"), "Told 2 workers to end their jobs")
        eventually(lambda: not any(one.alive for one in store.views.workers()))
        assert set(store.views.states(again).values()) == {"pending"}
    finally:
        (cli.folder / "go").touch()
        cli("worker", "stop", "--now")


def test_settings_are_shown_set_and_unset(page: Page, store: Store) -> None:
    page.goto("/settings")
    grace = row(page, "kill_grace")
    expect(grace).to_contain_text("It takes a number from 0 to 86400.")
    expect(grace.get_by_role("cell").nth(0)).to_have_text("5")
    grace.get_by_label("kill_grace", exact=True).fill(MARKUP)
    grace.get_by_role("button", name="Set").click()
    expect(page.get_by_role("alert")).to_contain_text("it takes a number from 0 to 86400")
    is_only_text(page)
    expect(page.get_by_label("kill_grace", exact=True)).to_have_value(MARKUP)
    page.get_by_label("kill_grace", exact=True).fill("2.5")
    press(page, page.get_by_role("button", name="Set kill_grace"), "kill_grace = 2.5")
    assert store.config()["kill_grace"] == 2.5
    expect(page.get_by_role("button", name="Unset")).to_have_count(1)
    press(page, page.get_by_role("button", name="Unset kill_grace"), "kill_grace = 5 (the default)")
    assert store.config()["kill_grace"] == 5
    page.get_by_label("lease_timeout", exact=True).fill("1000000000")
    press(page, page.get_by_role("button", name="Set lease_timeout"), "lease_timeout = 1000000000")
    expect(page.get_by_label("lease_timeout", exact=True)).to_have_value("1000000000")


def test_the_audit_is_shown_page_by_page_and_by_who_and_what(page: Page, store: Store) -> None:
    page.goto("/audit")
    expect(page.get_by_text("Nothing has been done yet.")).to_be_visible()
    store.actor = "ann"
    for n in range(60):
        store.set_config("max_retries", str(n))
    store.actor = MARKUP
    with store.engine.write() as tx:
        store.audit(tx, f"act {MARKUP}", [f"target {MARKUP}"], f"detail {MARKUP}")
    page.goto("/audit")
    is_only_text(page, times=4)
    acts = page.get_by_role("row")
    expect(acts).to_have_count(51)
    expect(acts.nth(2)).to_contain_text("ann")
    expect(acts.nth(2).get_by_role("cell").nth(4)).to_have_text("59")
    page.get_by_role("link", name="Older").click()
    expect(acts).to_have_count(12)
    expect(acts.nth(11).get_by_role("cell").nth(4)).to_have_text("0")
    page.get_by_role("link", name="Latest").click()
    page.get_by_label("Who").fill("ann")
    page.get_by_label("Action").select_option("set")
    page.get_by_role("button", name="Filter").click()
    expect(acts.nth(1).get_by_role("cell").nth(4)).to_have_text("59")
    page.get_by_role("link", name="Older").click()
    expect(acts).to_have_count(11)
    page.get_by_role("link", name="Clear").click()
    page.get_by_label("Who").fill(MARKUP)
    page.get_by_role("button", name="Filter").click()
    expect(acts).to_have_count(2)
    page.get_by_label("Action").select_option("retry")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("Nothing fits.")).to_be_visible()


def test_whoever_may_not_do_it_finds_nothing_to_press(chromium: Browser, served: Served, store: Store) -> None:
    dies(store, "false", "no")
    store.schedules.add("nightly", "30 2 * * *", None, "UTC", {"command": "true"})
    alive = FakeWorker(store, "w2")
    store.set_config("max_retries", "5")
    buttons = {"viewer": [0, 0, 0, 0, 0, 0, 0], "operator": [1, 1, 1, 1, 2, 0, 0], "admin": [2, 1, 2, 3, 2, 14, 0]}
    for role, expected in buttons.items():
        with tab(chromium, served, role) as page:
            for path, count in zip(PAGES, expected, strict=True):
                page.goto(path)
                expect(page.locator('main form[method="post"] button')).to_have_count(count)
                links = page.get_by_role("main").get_by_role("link", name=re.compile("^(New schedule|Change|Limits)"))
                assert (links.count() > 0) == (role == "admin" and path in PAGES[1:4]), (role, path)
            assert page.goto("/schedules/new").status == (200 if role == "admin" else 403)  # type: ignore[union-attr]
            page.goto("/queues?edit=default")
            expect(page.get_by_role("button", name="Save")).to_have_count(int(role == "admin"))
    alive.leave()


def test_without_javascript_everything_can_be_done(chromium: Browser, served: Served, store: Store) -> None:
    id = dies(store, "false", "no")
    store.schedules.add("nightly", "30 2 * * *", None, "UTC", {"command": "true"})
    alive = FakeWorker(store, "w2")
    steps = (
        ("/dead", "Retry", "1 job is pending again."),
        ("/queues", "Pause default", "Queue default is paused."),
        ("/schedules", "Run now nightly", "Enqueued "),
        ("/schedules/nightly/edit", "Save", "Schedule nightly: at 02:30 every day."),
        ("/workers", "Drain w2", "Told 1 worker to leave"),
        ("/settings", "Set crash_limit", "crash_limit = 3"),
        ("/schedules/nightly", "Remove", "Schedule nightly removed."),
    )
    with tab(chromium, served, "admin", javascript=False) as page:
        for path, button, said in steps:
            page.goto(path)
            page.get_by_role("main").get_by_role("button", name=button, exact=True).click()
            if button == "Remove":
                page.get_by_role("button", name="Yes, do it").click()
            expect(page.get_by_role("status").filter(has_text=said)).to_be_visible()
        page.goto("/schedules/new")
        page.get_by_label("Name").fill("tick")
        page.get_by_label("Or every").fill("10m")
        page.get_by_label("Command").fill("true")
        page.get_by_role("button", name="Preview").click()
        expect(page.locator("#preview").get_by_role("row")).to_have_count(6)
        page.goto("/audit")
        expect(page.get_by_role("row")).to_have_count(len(steps) + 1)
    assert store.views.states([id]) == {id: "pending"}
    alive.leave()


def test_what_changes_on_a_page_is_sent_to_whoever_has_it_open(served: Served, store: Store) -> None:
    dies(store, "false", "no")
    store.schedules.add("nightly", "30 2 * * *", None, "UTC", {"command": "true"})
    for path, region in zip(PAGES, ("groups", "queues", "schedules", "schedule", "workers", "", "acts"), strict=True):
        with served.session() as browser:
            drawn = browser.get(path).text
            for name in re.findall(r"<!--live ([\w-]+)-->", drawn):
                assert re.search(rf'<\w+[^>]* id="{name}"[^>]*>\s*<!--live {name}-->', drawn), name
            with browser.stream("GET", "/live", params={"page": path}) as stream:
                line = next(line for line in stream.iter_lines() if line.startswith("data: "))
            regions = json.loads(line.removeprefix("data: "))
            assert region in regions if region else {"value-kill_grace", "unset-kill_grace"} <= regions.keys()
            assert not re.search(r'name="csrf" value="\w', line)
