"""The overview in a real browser: what it shows, and that it stays true while somebody looks."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from queuectl.jobs.job_spec import NewJob
from queuectl.metrics.run_stats import CHARTS, Point
from queuectl.store import Store
from queuectl.system.escaping import visible
from queuectl.web import chart
from tests.web.conftest import Served, enqueue, login
from tests.web.sample import NASTY, an_hour, fill

HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def tile(page: Page, name: str) -> str:
    return page.locator(".tile", has_text=name).locator(".value").inner_text()


def expect_tile(page: Page, name: str, value: str) -> None:
    expect(page.locator(".tile", has_text=name).locator(".value")).to_have_text(value)


def test_an_empty_queue_says_what_to_do_next(page: Page) -> None:
    expect(page.get_by_text("No job has been enqueued yet")).to_be_visible()
    expect(page.get_by_text("queuectl enqueue").first).to_be_visible()
    expect(page.get_by_text("Nothing is scheduled.")).to_be_visible()


def test_it_changes_by_itself_in_all_tabs_pauses_when_hidden_and_survives_a_restart(
    page: Page, store: Store, served: Served
) -> None:
    other = page.context.new_page()
    other.goto("/")
    live = page.locator("#live")
    expect(live).to_have_text("Live")
    page.evaluate("window.same = true")  # gone after a reload
    enqueue(store)
    for tab in (page, other):
        expect_tile(tab, "Pending", "1")
    expect(page.get_by_text("Jobs wait, and no worker is running")).to_be_visible()

    page.evaluate(HIDE, True)
    expect(live).to_have_text("Paused")
    enqueue(store)
    expect_tile(other, "Pending", "2")
    assert tile(page, "Pending") == "1"
    page.evaluate(HIDE, False)
    expect(live).to_have_text("Live")
    expect_tile(page, "Pending", "2")

    served.stop()
    expect(live).to_have_text("Reconnecting")
    enqueue(store)
    served.start(served.port)
    expect(live).to_have_text("Live")
    expect_tile(page, "Pending", "3")
    assert page.evaluate("window.same")


def test_what_somebody_does_on_the_page_outlives_an_update(page: Page, store: Store) -> None:
    fill(store)
    page.reload()
    expect(page.locator("#live")).to_have_text("Live")
    page.set_viewport_size({"width": 390, "height": 800})
    page.locator("#queues .scroll").evaluate("element => { element.scrollLeft = 150; }")
    button = page.get_by_role("button", name="Pause mail")
    button.focus()
    before = int(tile(page, "Pending"))
    enqueue(store, queue="a-new-queue")
    expect(page.get_by_role("link", name="a-new-queue")).to_be_visible()
    expect_tile(page, "Pending", str(before + 1))
    expect(button).to_be_focused()
    assert page.locator("#queues .scroll").evaluate("element => element.scrollLeft") >= 150
    form = page.locator("form", has=button)
    assert form.locator('input[name="csrf"]').input_value() == page.locator('meta[name="csrf"]').get_attribute(
        "content"
    )


def test_it_shows_what_runs_what_failed_and_what_comes(page: Page, store: Store) -> None:
    fill(store)
    page.reload()
    running = page.locator("#running")
    expect(running.get_by_text("pg_dump")).to_be_visible()
    expect(running.get_by_text("42 %")).to_be_visible()
    expect(page.locator("#firings").get_by_text("poll-inbox")).to_be_visible()
    expect(page.locator("#queues").get_by_text("0 of 3")).to_be_visible()
    expect(page.locator("#queues").get_by_text("paused")).to_be_visible()
    for text in NASTY[:4]:
        expect(page.get_by_text(visible(f"echo {text}"), exact=True).first).to_be_attached()
    assert page.title() == "Overview · queuectl"
    expect(page.get_by_text("No run has ended in this time.")).to_be_visible()
    an_hour(store)
    expect(page.locator("#chart svg g")).to_have_count(55)
    assert float(tile(page, "Done per minute")) > 10
    page.locator("summary", has_text="As a table").click()
    expect(page.locator("#chart tbody tr")).to_have_count(55)
    page.get_by_role("link", name="7d", exact=True).click()
    expect(page.locator("#chart tbody tr").first).to_be_attached()
    expect(page.locator(".switch [aria-current]")).to_have_text("7d")
    seconds = running.locator("[data-since]").first
    first = seconds.inner_text()
    expect(seconds).not_to_have_text(first)  # it counts by itself

    dead = int(tile(page, "Dead"))
    page.locator("#failures").get_by_role("button", name="Retry").first.click()
    expect(page.locator(".said")).to_have_text("1 job retried.")
    expect_tile(page, "Dead", str(dead - 1))


def test_dark_light_or_as_the_system_has_it(page: Page) -> None:
    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = background()
    page.emulate_media(color_scheme="dark")
    dark = background()
    assert light != dark
    page.get_by_role("button", name="Light").click()
    assert background() == light
    page.reload()
    assert background() == light
    assert page.locator("html").get_attribute("data-theme") == "light"  # by the server: nothing flashes
    page.get_by_role("button", name="As the system").click()
    assert background() == dark
    page.reload()
    assert page.locator("html").get_attribute("data-theme") is None


def test_the_theme_can_be_chosen_without_javascript(served: Served, chromium: Browser) -> None:
    context = chromium.new_context(base_url=served.url, java_script_enabled=False)
    page = context.new_page()
    login(page, served)
    page.goto("/?span=24h")
    page.get_by_role("button", name="Dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.url.endswith("/?span=24h")
    for elsewhere in ("/nowhere", "/api/v1"):
        page.goto(elsewhere)
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="As the system").click()
    expect(page.locator("html")).not_to_have_attribute("data-theme", "dark")
    assert page.url.endswith("/api/v1")
    context.close()


def test_viewers_see_no_buttons(served: Served, store: Store) -> None:
    fill(store)
    with served.session("viewer") as viewer:
        for path in ("/", "/jobs"):
            text = viewer.get(path).text
            assert 'action="/queues/' not in text
            assert 'name="id"' not in text
        assert viewer.get("/bulk/new?do=cancel").status_code == 403
        assert viewer.post("/chosen/retry", data={"id": "x"}).status_code == 403
    with served.session("operator") as operator:
        assert operator.post("/chosen/delete", data={"id": "x"}).status_code == 403
        assert operator.post("/bulk/new/delete", data={"q": ""}).status_code == 403
        assert operator.get("/bulk/new?do=delete").status_code == 403


# -- the chart -------------------------------------------------------------------------------------------

HOUR = [
    Point(moment * 60_000, moment % 7, moment % 3, 100.0 * moment if moment % 5 else None) for moment in range(60)
]


def test_a_chart_shows_each_column_with_its_numbers() -> None:
    drawn = chart.draw(HOUR, 3600, "A & <b>")
    assert 'aria-label="A &amp; &lt;b&gt;"' in drawn
    assert drawn.count("<title>") == sum(point.runs > 0 for point in HOUR)
    assert "style=" not in drawn
    assert "6 completed, 1 failed, 95 % waited less than 1.3s" in drawn
    assert "<polyline" not in drawn


def test_a_chart_of_nothing_is_a_chart() -> None:
    for seconds in CHARTS:
        assert 'class="grid"' in chart.draw([], seconds, "")
        assert "<title>" not in chart.draw([Point(0, 0, 0, None)], seconds, "")


@pytest.mark.parametrize(("most", "top"), [(0, 4), (4, 4), (5, 6), (11, 20), (201, 300), (1_000_000, 1_000_000)])
def test_an_axis_ends_at_a_round_number(most: int, top: int) -> None:
    assert chart.nice(most) == top


def test_bars_stay_within_the_plot_and_stand_on_one_another() -> None:
    import re

    drawn = str(chart.draw([Point(0, 3, 3, None)], 3600, ""))
    bars = re.findall(r'class="(completed|failed)" x="[\d.]+%" width="[\d.]+%" y="([\d.]+)" height="([\d.]+)"', drawn)
    (_, y1, h1), (_, y2, h2) = bars
    floor = chart.ROOM + chart.RUNS
    assert float(y1) + float(h1) == pytest.approx(floor)
    assert float(y2) + float(h2) == pytest.approx(float(y1))
    assert float(y2) == pytest.approx(chart.ROOM)  # six of six


def test_enqueued_by_somebody_else_in_a_batch_of_many(page: Page, store: Store) -> None:
    """One transaction, one update: no row is drawn twice."""
    expect(page.locator("#live")).to_have_text("Live")
    store.enqueue([NewJob("true", queue=f"q{n}") for n in range(5)])
    expect(page.locator("#queues tbody tr")).to_have_count(5)
    store.enqueue([NewJob("true", queue="q0"), NewJob("true", queue="a")])
    expect(page.locator("#queues tbody tr")).to_have_count(6)
    expect(page.locator("#queues tbody tr").first).to_contain_text("q0")
