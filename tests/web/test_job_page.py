"""The page of one job, in a real browser, with a real worker."""

from __future__ import annotations

import dataclasses
import functools
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from queuectl.store import Store
from queuectl.web.auth import Role, User
from queuectl.web.pages import job as job_page
from queuectl.web.pages import new_job
from queuectl.web.rendering import Ask, View, draw
from tests.conftest import DEADLINE, eventually
from tests.e2e.conftest import UNTIL_GO, Cli
from tests.web.conftest import Served, enqueue, login

EVIL = '<img src=x onerror="window.evil=1"></pre><script>window.evil=1</script>\'"&amp;{{7*7}}'


@pytest.fixture(autouse=True)
def no_worker_is_left(cli: Cli) -> Iterator[None]:
    yield
    for worker in cli.workers():
        cli("worker", "stop", worker["id"], "--now")
    eventually(lambda: not cli.workers(), "all workers gone")


@pytest.fixture(autouse=True)
def expectations() -> None:
    expect.set_options(timeout=DEADLINE * 1000)


PRINTS = r"""
printf '\033[31mred\033[0m and plain\n'; seq 1 300; printf 'half a li'
while [ ! -e go ]; do sleep 0.05; done
printf 'ne\n10%%\r20%%\r100%%\n'; seq 301 600; echo needle >&2
"""


def test_a_job_is_watched_from_its_beginning_to_its_end(page: Page, store: Store, cli: Cli) -> None:
    id = cli.enqueue(PRINTS)
    page.goto(f"/jobs/{id[:6]}")
    page.wait_for_url(f"**/jobs/{id}")
    log = page.locator("#log")
    expect(page.locator("#jobhead")).to_contain_text("pending")
    expect(page.locator("#why")).to_contain_text("No worker is running")
    expect(page.get_by_text("It has not run yet.").first).to_be_visible()
    page.evaluate("window.same_page = true")

    cli.ok("worker", "start")
    expect(log.locator("span.f1")).to_have_text("red")
    expect(log.locator(".line.open")).to_contain_text("half a li")
    expect(page.locator("#jobhead")).to_contain_text("processing")
    expect(page.locator("#runs tbody tr")).to_have_count(1)
    assert at_end(page)

    log.evaluate("log => { log.scrollTop = 0; }")  # somebody reads, and is left in peace
    expect(page.get_by_label("Follow")).not_to_be_checked()
    (cli.folder / "go").touch()
    expect(log).to_contain_text("needle")
    expect(log.get_by_text("half a line")).to_have_count(1)
    expect(log.get_by_text("100%", exact=True)).to_have_count(1)
    assert log.evaluate("log => log.scrollTop") == 0
    expect(page.locator("#jobhead")).to_contain_text("completed")
    expect(page.locator("#history")).to_contain_text("exit code 0")
    expect(log.locator(".bound").last).to_contain_text("rc=0")
    page.get_by_label("Follow").check()
    assert at_end(page)
    numbers = log.evaluate("log => [...log.querySelectorAll('a[data-n]')].map(a => Number(a.dataset.n))")
    assert numbers == list(range(1, len(numbers) + 1))
    lines = (cli.logs / f"job_{id}.log").read_bytes().splitlines()
    assert len(numbers) == len(lines) - 2  # of the progress bar only the end is seen
    assert page.evaluate("window.same_page") is True  # nothing of this was a reload
    fresh = page.request.get(f"/jobs/{id}").text()
    assert re.findall(r'id="L\d+">.*', fresh) == re.findall(r'id="L\d+">.*', page.content())


def at_end(page: Page) -> bool:
    return bool(
        eventually(
            lambda: page.evaluate("() => { const l = document.getElementById('log');"
                                  " return l.scrollTop + l.clientHeight >= l.scrollHeight - 2 }")
        )
    )  # fmt: skip


def test_finding_things_in_a_log(page: Page, cli: Cli) -> None:
    id = cli.enqueue(r"seq 1 2500; printf 'Need\033[1mle\033[0m in hay, needle\n'; seq 1 500; echo " + "x" * 300)
    cli.ok("worker", "start")
    cli.finished(id)
    page.goto(f"/jobs/{id}")
    log = page.locator("#log")
    assert log.locator(".line").count() == 2000
    page.get_by_label("Search the log").fill("needle")
    expect(page.locator("#found")).to_have_text("2 of 2")
    assert page.evaluate("CSS.highlights.get('found').size") == 2
    assert page.evaluate("[...CSS.highlights.get('found')].map(String)") == ["Needle", "needle"]
    expect(log.locator(".line.hit")).to_be_in_viewport()
    page.get_by_label("Next match").click()
    expect(page.locator("#found")).to_have_text("1 of 2")
    page.get_by_label("Previous match").click()
    page.get_by_label("Search the log").press("Enter")
    expect(page.locator("#found")).to_have_text("1 of 2")
    page.get_by_label("Search the log").fill("nothing like it")
    expect(page.locator("#found")).to_have_text("Not found")

    wide = "log => log.scrollWidth > log.clientWidth"
    assert log.evaluate(wide) is False
    page.get_by_label("Wrap").uncheck()
    assert log.evaluate(wide) is True

    log.locator("#L2000 a").click()
    expect(page).to_have_url(re.compile("#L2000$"))
    log.locator("#L2003 a").click(modifiers=["Shift"])
    expect(log.locator(".marked")).to_have_count(4)
    page.goto("about:blank")
    page.goto(f"/jobs/{id}#L17")  # in a part that is not shown at first
    page.wait_for_url(f"**/jobs/{id}?line=17#L17")
    expect(page.locator("#L17")).to_have_class(re.compile("marked"))
    expect(page.locator("#L17")).to_contain_text("16")
    assert log.locator(".line").first.get_attribute("id") == "L17"
    page.get_by_role("link", name="Later lines").click()
    expect(log.locator(".line").first).to_have_attribute("id", "L2017")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == f"job_{id}.log"
    assert Path(download.value.path()).read_bytes() == (cli.logs / f"job_{id}.log").read_bytes()


def test_nothing_that_a_job_says_acts_on_the_page(page: Page, store: Store, cli: Cli) -> None:
    command = (
        f': {EVIL.replace(chr(39), "")!r}; printf \'%s\\n\' "$SECRET"; cp report "$QUEUECTL_RESULT"; echo >&2; exit 3'
    )
    id = cli.enqueue(
        command, env={"SECRET": EVIL, "<b>X</b>": "1"}, tags=[EVIL.replace(" ", "_")], key=EVIL, unique_key=EVIL,
        max_retries=1, cwd=str(cli.folder),
    )  # fmt: skip
    (cli.folder / "report").write_text(json.dumps({"message": EVIL, "progress": 50, "result": {EVIL: EVIL}}))
    for path in (f"/jobs/{id}", f"/jobs/new?clone={id}"):
        page.goto(path)
        expect(page.get_by_text("window.evil").first).to_be_attached()
    page.goto(f"/jobs/{id}")
    cli.ok("worker", "start")
    expect(page.locator("#jobhead")).to_contain_text("dead")
    expect(page.locator("#log")).to_contain_text(EVIL)
    page.reload()
    expect(page.locator("#log")).to_contain_text(EVIL)
    expect(page.locator("#command")).to_have_text(command)
    expect(page.locator("#why")).to_contain_text(EVIL)
    expect(page.locator("#facts")).to_contain_text("window.evil")
    expect(page.get_by_text(EVIL, exact=True).first).to_be_attached()
    assert not page.get_by_text("Values").locator("..").locator("dl").is_visible()
    page.get_by_text("Values").click()
    expect(page.get_by_text("Values").locator("..").locator("dl")).to_contain_text(EVIL)
    assert page.locator("img, main script").count() == 0
    assert page.evaluate("window.evil") is None


UNSEEN = "\u202e\x1b[31m\x7f\x9b\u2066"


def test_what_cannot_be_seen_is_spelled_out(page: Page, served: Served, store: Store, cli: Cli) -> None:
    says = f"{UNSEEN} é\n\tx"
    command = f": '{says}'; cp report \"$QUEUECTL_RESULT\"; {UNTIL_GO}; exit 3"
    report = {"message": says.replace("\n", " "), "progress": 50, "result": {UNSEEN: says}, "error": says}
    (cli.folder / "report").write_text(json.dumps(report))
    store.schedules.add("nightly", "@daily", None, "UTC", {"command": command, "env": {"A": says}})
    id = cli.enqueue(command, env={"A": says, UNSEEN: "1"}, max_retries=1, cwd=str(cli.folder))
    cli.ok("worker", "start")
    cli.until(id, "processing")
    search = {"q": f'"{UNSEEN}"'}
    with served.session() as browser:

        def look(path: str, **query: str) -> str:
            text = browser.get(path, params=query).raise_for_status().text
            shown = re.sub(r"(?s)<input [^>]*>|(<textarea [^>]*>).*?</textarea>", "", text)
            assert not set(UNSEEN).difference("[31m") & set(shown), path
            return text

        look("/workers")
        for path in ("/", f"/jobs/{id}"):
            assert r"\u202e\x1b[31m\x7f\x9b\u2066" in look(path), path
        (cli.folder / "go").touch()
        cli.finished(id)
        for path in ("/", "/jobs", "/dead", f"/jobs/{id}", "/schedules", "/schedules/nightly"):
            assert r"\u202e\x1b[31m\x7f\x9b\u2066" in look(path), path
        look("/jobs", **search)
        assert r"\u202e" in look("/bulk/new", do="delete", **search)
        assert UNSEEN in look("/schedules/nightly/edit")
        look("/audit")
        assert look("/jobs/new", clone=id).count(UNSEEN) == 1  # to be sent back; the environment is JSON

    page.goto(f"/jobs/{id}")
    expect(page.locator("#command")).to_have_text(re.compile(r"\\u202e\\x1b"))
    expect(page.locator("[data-copy=command]")).to_have_count(0)
    line = page.locator("#cli").text_content() or ""
    assert line.isascii()
    assert cli.shell(line).code == 0
    assert (store.views.job("@last").command, store.views.job("@last").env) == (command, {"A": says, UNSEEN: "1"})


def test_a_line_that_is_too_long_for_a_page(page: Page, cli: Cli) -> None:
    id = cli.enqueue("yes x | tr -d '\\n' | head -c 1500000; echo the end")
    cli.ok("worker", "start")
    cli.finished(id)
    page.goto(f"/jobs/{id}")
    log = page.locator("#log")
    expect(log).to_contain_text("xthe end")
    expect(log.locator(".cut")).to_contain_text("bytes of this line are not shown")
    page.get_by_role("link", name="Earlier lines").click()
    for _ in range(2):
        expect(log).to_contain_text("xxx")
        expect(log).not_to_contain_text("the end")
        page.get_by_role("link", name="Later lines").click()
    expect(log).to_contain_text("xthe end")
    expect(log.locator(".bound")).to_contain_text("rc=0")


def test_buttons_and_who_has_them(page: Page, served: Served, store: Store, cli: Cli) -> None:
    id = cli.enqueue("false", max_retries=1, id="a-job")
    page.goto(f"/jobs/{id}")
    cancel = page.get_by_role("button", name="Cancel")
    expect(page.get_by_role("button", name="Delete")).to_have_count(0)
    cancel.click()
    page.get_by_role("dialog").get_by_role("button", name="Yes, cancel").click()
    expect(page.get_by_text(f"Job {id} cancelled.")).to_be_visible()
    assert store.views.job(id).state == "cancelled"
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Yes, delete").click()
    page.wait_for_url("**/jobs")
    assert cli("show", id).code == 3

    cli.ok("worker", "start")
    id = cli.enqueue("test -e good", max_retries=1)
    page.goto(f"/jobs/{id}")
    expect(page.locator("#jobhead")).to_contain_text("dead")
    (cli.folder / "good").touch()
    page.get_by_role("button", name="Retry").click()
    expect(page.locator("#jobhead")).to_contain_text("completed")
    expect(page.locator("#runs tbody tr")).to_have_count(2)
    assert [act.action for act in store.views.acts()] == ["retry", "delete", "cancel"]

    with served.session("viewer") as viewer:
        text = viewer.get(f"/jobs/{id}").text
        assert not re.search(f'action="/jobs/{id}|href="/jobs/new', text)
        assert viewer.post(f"/jobs/{id}/delete").status_code == 403
        assert viewer.get("/jobs/new").status_code == 403
    with served.session("operator") as operator:
        assert operator.post(f"/jobs/{id}/delete").status_code == 403
        assert operator.post(f"/jobs/{id}/retry").status_code == 409


def test_a_job_is_made_and_cloned(page: Page, store: Store, cli: Cli) -> None:
    parent = enqueue(store, "true", id="parent", run_at=2**42)
    page.goto("/jobs/new")
    page.get_by_label("Command").fill("echo one\necho two")
    page.get_by_label("Priority").fill("soon")
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Environment").fill("A=1\nB = 2 =3")
    page.get_by_label("After these jobs").fill("parent any")
    page.get_by_label("Unique key").fill("the one")
    page.get_by_label("If there is one already").select_option("skip")
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("alert")).to_contain_text('"priority" must be a whole number, not "soon"')
    expect(page.get_by_role("alert")).to_contain_text("Hint: for example 5")
    expect(page.get_by_label("Command")).to_have_value("echo one\necho two")
    expect(page.get_by_label("Environment")).to_have_value("A=1\nB = 2 =3")
    expect(page.get_by_label("If there is one already")).to_have_value("skip")
    page.get_by_label("Priority").fill("5")
    page.get_by_role("button", name="Enqueue").click()
    page.wait_for_url(re.compile("/jobs/[a-z2-7]{10}$"))
    first = store.views.job("@last")
    assert (first.command, first.priority, first.env) == ("echo one\necho two", 5, {"A": "1", "B ": " 2 =3"})
    assert first.depends_on == ((parent, "any"),)

    page.goto(f"/jobs/new?clone={first.id}")
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("alert")).to_contain_text("the one")  # still taken
    page.get_by_label("Unique key").fill("")
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_text("enqueued.")).to_be_visible()
    second = store.views.job("@last")
    assert second.id != first.id
    of_its_own = ("id", "created_at", "updated_at", "run_at", "log_path", "unique_key")
    for name, value in first.as_json().items():
        assert name in of_its_own or second.as_json()[name] == value, name

    line = page.locator("#cli").text_content() or ""
    assert cli.shell(line).code == 0
    assert store.views.job("@last").command == first.command


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ('{"A":' * 20_000, "nested too deeply"),
        ('{"A": 1,}', "not valid JSON"),
        ('{"A": "1", "A": "2"}', "given twice"),
    ],
    ids=["deep", "no JSON", "twice"],
)
def test_an_environment_that_is_none_is_told_of_in_the_form(served: Served, env: str, said: str) -> None:
    with served.session() as browser:
        answer = browser.post("/jobs/new", data={"command": "true", "env": env})
    assert answer.status_code == 422
    assert said in answer.text
    assert html.escape(env[:99]).replace("&quot;", "&#34;") in answer.text


def test_every_field_survives_the_form() -> None:
    fields = {
        "command": " a\n\nb ", "queue": "q", "priority": -1, "max_retries": 2, "backoff_base": 0.5,
        "timeout_seconds": 1.5, "run_at": "2999-01-01T00:00:00.000Z", "cwd": "/a b ", "env": {"A": " x\n", "B": "\r"},
        "tags": ["a", "b"], "depends_on": [{"id": "x", "condition": "ok"}, {"id": "y", "condition": "fail"}],
        "batch": "b", "key": " k", "key_limit": 2, "retry_on": ["1"], "no_retry_on": ["SIGKILL", "75"],
        "unique_key": "u ",
    }  # fmt: skip
    back = new_job.from_texts(dict.fromkeys(new_job.TEXTS, "") | new_job.as_texts(fields))
    back["depends_on"] = [{"condition": "ok"} | link for link in back["depends_on"]]  # type: ignore[attr-defined]
    assert back == fields | {"timeout_seconds": "1.5"}


def test_what_it_waits_for_and_what_waits_for_it_is_drawn(page: Page, store: Store) -> None:
    for id, parents in {
        "great": [], "grand": ["great"], "parent-1": ["grand"], "parent-2": [],
        "this": ["parent-1", {"id": "parent-2", "condition": "fail"}], "child": ["this"], "grandchild": ["child"],
    }.items():  # fmt: skip
        enqueue(store, "true", id=id, depends_on=parents)
    page.goto("/jobs/this")
    graph = page.locator("svg.dag")
    names = graph.locator("g.node").evaluate_all("all => all.map(g => [g.querySelector('rect').x.baseVal.value,"
                                                 " g.querySelector('.name').textContent])")  # fmt: skip
    order = [name for _, name in sorted(names) if not name.startswith("parent")]
    assert order == ["great", "grand", "this", "child", "grandchild"]
    expect(graph.get_by_text("if dead")).to_have_count(1)
    graph.locator(".name", has_text="parent-1").click()
    page.wait_for_url("**/jobs/parent-1")
    page.get_by_text("As a list").click()
    page.locator("#links").get_by_role("link", name="this").click()
    page.wait_for_url("**/jobs/this")
    store.cancel(["parent-1"])
    expect(graph.locator(".node-cancelled .name").first).to_be_visible()

    for n in range(100):
        enqueue(store, "true", id=f"many-{n}", depends_on=["parent-2"])
    page.goto("/jobs/parent-2")
    assert graph.locator("g.node").count() == job_page.MOST_NODES
    expect(page.locator("#graph")).to_contain_text("more")


def test_a_deleted_parent_is_drawn_but_not_another_job_with_its_id(store: Store) -> None:
    for id, parents in {"old": [], "kept": [], "this": ["old", "kept"], "grand": []}.items():
        enqueue(store, "true", id=id, depends_on=parents)
    store.cancel(["old"])
    store.delete(["old"])
    enqueue(store, "true", id="old", depends_on=["grand"])
    graph = job_page.graph_of(store.views, store.views.job("this"))
    assert graph is not None
    assert "old: deleted" in graph.drawing
    assert "grand" not in graph.drawing
    assert {(link.id, link.state) for link in graph.parents} == {("old", "deleted"), ("kept", "pending")}


def test_all_of_it_works_without_scripts_and_on_a_phone(chromium: Browser, served: Served, cli: Cli) -> None:
    context = chromium.new_context(
        base_url=served.url, java_script_enabled=False, viewport={"width": 390, "height": 800}
    )
    page = context.new_page()
    login(page, served)
    id = cli.enqueue("echo 'out <b>'; seq 1 3000; exit 1", max_retries=1)
    cli.ok("worker", "start")
    cli.finished(id)
    page.goto("/jobs/@last")
    page.wait_for_url(f"**/jobs/{id}")
    expect(page.locator("#log")).to_contain_text("3000")
    assert not page.get_by_label("Search the log").is_visible()
    width = page.locator("body").bounding_box()
    assert width is not None
    assert width["width"] == 390
    page.get_by_role("link", name="Earlier lines").click()
    expect(page.locator("#log")).to_contain_text("out <b>")
    page.locator("#L2 a").click()
    expect(page.locator("#L2:target")).to_have_count(1)
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_text("will be tried again")).to_be_visible()
    page.get_by_role("link", name="Clone").click()
    page.get_by_label("Tags").fill("again")
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_text("again", exact=True)).to_be_visible()
    cli.finished(id)
    page.goto(f"/jobs/{id}")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Delete this job")).to_be_visible()
    assert cli("show", id).code == 0
    page.get_by_role("button", name="Yes, do it").click()
    page.wait_for_url("**/jobs")
    assert cli("show", id).code == 3
    context.close()


def test_addresses_that_lead_nowhere(served: Served, store: Store) -> None:
    id = enqueue(store, id="some-job")
    enqueue(store, id="some-other")
    with served.http("viewer") as viewer:
        assert viewer.get("/jobs/nothing").status_code == 404
        assert viewer.get("/jobs/some").status_code == 422
        assert viewer.get("/jobs/@last").headers["location"] == "/jobs/some-other"
        assert viewer.get(f"/jobs/{id}", params={"line": "-1"}).status_code == 200
        assert viewer.get(f"/jobs/{id}/log/more").status_code == 400
        assert viewer.get(f"/jobs/{id}/log/more", params={"at": "0.0.1.0.0."}).status_code == 204
        assert viewer.get("/jobs/nothing/log/more", params={"at": "0.0.1.0.0."}).status_code == 404


def test_a_log_on_another_machine_is_told_of(store: Store) -> None:
    id = enqueue(store, id="far")
    ask = Ask(User("ann", Role.VIEWER), {"id": id})
    view = job_page.show(store, ask)
    far = dataclasses.replace(store.views.job(id), log_host="far.example", stdout="the <end>\n", stderr="\x1b[31mbad")
    shows = {**view.shows, "job": far, "read_log": functools.partial(job_page._log, far, [], "")}
    text = draw(View("job.html", shows), ask, "", live=False)
    assert "It ran on far.example" in text
    assert "the &lt;end&gt;" in text
    assert '<span class="f1">bad</span>' in text
    assert "log/more" not in text
    assert "download=1" not in text


def test_runs_however_they_ended(page: Page, store: Store, cli: Cli) -> None:
    cli.ok("worker", "start")
    killed = cli.enqueue("kill -9 $$", max_retries=1)
    timed_out = cli.enqueue("sleep 60", max_retries=1, timeout=0.1)
    running = cli.enqueue(UNTIL_GO)
    cli.finished(killed)
    cli.finished(timed_out)
    page.goto(f"/jobs/{killed}")
    expect(page.locator("#runs")).to_contain_text("SIGKILL")
    expect(page.locator("#log .silent")).to_have_count(2)  # its run printed nothing
    page.goto(f"/jobs/{timed_out}")
    expect(page.locator("#runs")).to_contain_text("timeout")
    cli.until(running, "processing")
    page.goto(f"/jobs/{running}")
    expect(page.locator("#runs tbody tr")).to_contain_text("processing")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Yes, cancel").click()
    expect(page.locator("#jobhead")).to_contain_text("cancelled")
    expect(page.locator("#runs tbody tr")).to_contain_text("SIGTERM")


def test_a_life_of_which_nothing_is_known_has_no_strip() -> None:
    assert job_page.strip([]) == []
