"""The list of jobs in a real browser: searching, paging, choosing, and doing something to many."""

from __future__ import annotations

from playwright.sync_api import Browser, Locator, Page, expect

from queuectl.jobs.job_spec import NewJob
from queuectl.store import Store
from queuectl.system.escaping import visible
from tests.conftest import eventually
from tests.web.conftest import Served, enqueue, login
from tests.web.sample import NASTY, fill


def ids(page: Page) -> list[str]:
    return [str(id) for id in page.locator("tbody tr").evaluate_all("rows => rows.map(row => row.dataset.key)")]


def go(page: Page, by: Locator) -> None:
    with page.expect_navigation():
        by.click()


def expect_said(page: Page, text: str) -> None:
    """What was done, on the next page; which then is there as a whole, its scripts included."""
    expect(page.locator(".said")).to_have_text(text)
    page.wait_for_load_state("load")


def test_searching_and_paging(page: Page, store: Store) -> None:
    known = store.enqueue([NewJob(f"step {n}", queue="even" if n % 2 == 0 else "odd") for n in range(120)])
    page.get_by_role("link", name="Jobs", exact=True).click()
    expect(page.locator(".tabs a[aria-current]")).to_have_text("All 120")
    newest = ids(page)
    assert len(newest) == 50
    go(page, page.get_by_role("link", name="Older"))
    middle = ids(page)
    go(page, page.get_by_role("link", name="Older"))
    assert newest + middle + ids(page) == known[::-1]
    expect(page.get_by_role("link", name="Older")).to_have_count(0)
    go(page, page.get_by_role("link", name="Newer"))
    assert ids(page) == middle

    page.get_by_label("Search").fill("queue:odd step 7")
    go(page, page.get_by_role("button", name="Search"))
    assert set(ids(page)) == {known[n] for n in (7, *range(71, 80, 2))}
    page.goto("/jobs?q=queue:odd")
    expect(page.locator(".tabs a").first).to_have_text("All 60")
    page.locator(".tabs").get_by_role("link", name="Dead").click()
    expect(page.get_by_label("Search")).to_have_value("state:dead queue:odd")
    expect(page.get_by_text("No job fits.")).to_be_visible()

    page.get_by_label("Search").fill("stat:dead")
    page.get_by_label("Search").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text('"stat:" cannot be searched by. Did you mean "state"?')
    expect(page.get_by_label("Search")).to_have_value("stat:dead")


def test_choosing_with_the_mouse(page: Page, store: Store) -> None:
    known = store.enqueue([NewJob(f"step {n}") for n in range(9)])[::-1]
    page.goto("/jobs")
    expect(page.locator("#live")).to_have_text("Live")
    cancel = page.locator("#chosen").get_by_role("button", name="Cancel")
    expect(cancel).to_be_disabled()
    boxes = page.locator('input[name="id"]')
    boxes.nth(2).click()
    boxes.nth(5).click(modifiers=["Shift"])
    expect(page.locator("[data-picked]")).to_have_text("4 selected")
    new = enqueue(store, "one more")
    expect(page.locator(f'tr[data-key="{new}"]')).to_be_visible()
    expect(page.locator("[data-picked]")).to_have_text("4 selected")  # the same four, one row further down

    cancel.click()
    expect(page.get_by_role("dialog")).to_contain_text("Cancel the selected jobs?")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    cancel.click()
    store.cancel([known[3]])  # somebody else is faster
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect_said(page, "3 jobs cancelled; 1 job left alone: finished already.")
    assert {id for id, state in store.views.states(known).items() if state == "cancelled"} == set(known[2:6])
    [act] = store.views.acts(limit=1)
    assert (act.who, act.action) == ("admin", "cancel")

    page.get_by_label("Select all on this page").check()
    expect(page.locator("[data-picked]")).to_have_text("10 selected")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect_said(page, "4 jobs deleted; 6 jobs left alone: not finished.")


def test_the_keyboard(page: Page, store: Store) -> None:
    newest = store.enqueue([NewJob(f"step {n}") for n in range(5)])[::-1]
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url("**/jobs")
    page.keyboard.press("/")
    expect(page.get_by_label("Search")).to_be_focused()
    page.keyboard.type("jjx?")
    expect(page.get_by_label("Search")).to_have_value("jjx?")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)

    for key in "jjjk":
        page.keyboard.press(key)
    expect(page.locator("tr.cursor")).to_have_attribute("data-key", newest[1])
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("[data-picked]")).to_have_text("2 selected")
    page.keyboard.press("c")
    page.keyboard.press("Enter")  # yes
    expect_said(page, "2 jobs cancelled.")
    page.keyboard.press("j")
    page.keyboard.press("c")  # nothing is selected: it is about the row
    page.keyboard.press("Enter")
    expect_said(page, "1 job cancelled.")
    states = store.views.states(newest)
    assert [states[id] for id in newest] == ["cancelled"] * 3 + ["pending"] * 2
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{newest[0]}")
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_url("**/")


def test_all_that_match_in_the_background(page: Page, store: Store) -> None:
    store.enqueue([NewJob(f"step {n}", queue="many") for n in range(1200)])
    keep = enqueue(store, "other", queue="few")
    page.goto("/jobs?q=queue:many")
    page.get_by_text("All that match…").click()
    page.get_by_role("link", name="Cancel all that match").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Cancel 1,200 jobs?")
    expect(page.locator("tbody tr")).to_have_count(5)
    page.get_by_role("button", name="Cancel them").click()
    page.wait_for_url("**/bulk/*")
    expect(page.get_by_text("1,200 of 1,200")).to_be_visible()
    expect(page.locator("#work").get_by_text("completed")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    assert store.views.counts()["cancelled"] == 1200
    assert store.views.job(keep).state == "pending"
    acts = [act for act in store.views.acts() if act.action == "cancel"]
    assert {act.who for act in acts} == {"admin"}
    assert "and 495 more" in acts[0].target or "and 195 more" in acts[0].target


def test_without_javascript(served: Served, store: Store, chromium: Browser) -> None:
    known = store.enqueue([NewJob(f"step {n}") for n in range(60)])
    context = chromium.new_context(base_url=served.url, java_script_enabled=False)
    page = context.new_page()
    login(page, served)
    page.goto("/jobs")
    page.get_by_role("link", name="Older").click()
    expect(page.locator("tbody tr")).to_have_count(10)
    page.get_by_label("Search").fill("step 17")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_label(f"Select {known[17]}").check()
    page.locator("#chosen").get_by_role("button", name="Cancel").click()
    expect_said(page, "1 job cancelled.")
    assert "q=step+17" in page.url
    assert store.views.job(known[17]).state == "cancelled"
    page.locator("#chosen").get_by_role("button", name="Retry").click()
    expect_said(page, "No job is selected: tick some first.")
    page.goto("/bulk/new?do=cancel&q=step+1")
    page.get_by_role("button", name="Cancel them").click()
    eventually(lambda: store.views.counts()["cancelled"] == 11)
    context.close()


def test_markup_is_only_text_and_nothing_is_too_long(page: Page, store: Store) -> None:
    fill(store)
    enqueue(store, "x" * 100_000)
    page.set_viewport_size({"width": 390, "height": 800})
    for path in (
        "/jobs",
        "/jobs?q=" + "%3Cscript%3Ealert(1)%3C/script%3E",
        "/jobs?q=batch:%3Ci%3Ebatch%3C/i%3E",
        "/bulk/new?do=retry&q=state:dead",
        "/",
    ):
        page.goto(path)
        assert page.title().endswith(" · queuectl")
        assert page.locator("main").locator("b, i, u, script, img").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert len(page.content()) < 100_000
    page.goto("/jobs?q=state:dead")
    for text in NASTY[:4]:
        expect(page.get_by_text(visible(f"echo {text}"), exact=True).first).to_be_attached()
