"""Every page there is, as it is seen: in light and dark, on a telephone, and by those who do not see."""

from __future__ import annotations

import importlib.resources
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect
from starlette.routing import compile_path

from queuectl.store import Store
from queuectl.web.pages import PAGES
from tests.conftest import DEADLINE
from tests.web.conftest import Served, login
from tests.web.sample import a_job_with_a_past, an_hour, fill

AXE = (importlib.resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
PATTERNS = {page.path: compile_path(page.path)[0] for page in PAGES}
KEEP = os.environ.get("QUEUECTL_SCREENSHOTS")  # a folder for what README and docs show
SIZES = {"wide": 1280, "phone": 390}


def test_every_page_is_readable_in_light_and_dark_and_fits_a_telephone(
    served: Served, store: Store, chromium: Browser
) -> None:
    fill(store)
    an_hour(store)
    addresses = _crawl(served, chromium)
    assert set(addresses) == set(PATTERNS), "there is a page that no link leads to"
    wrong: list[str] = []
    for theme in ("light", "dark"):
        for size, width in SIZES.items():
            page = _tab(served, chromium, theme, width)
            for _, address in sorted(addresses.items()):
                page.goto(address)
                where = f"{address} ({theme}, {size})"
                wrong += [f"{where}: {violation}" for violation in _violations(page)]
                if page.evaluate("document.documentElement.scrollWidth") > width:
                    wrong.append(f"{where}: wider than the screen")
                if page.locator("h1").count() != 1:
                    wrong.append(f"{where}: has not one h1")
            page.context.close()
    assert wrong == []


def test_what_readme_and_docs_show_can_be_drawn(
    served: Served, store: Store, chromium: Browser, tmp_path: Path
) -> None:
    fill(store, nasty=())
    an_hour(store)
    job = a_job_with_a_past(store)
    folder = Path(KEEP or tmp_path)
    for name, address, theme in (
        ("overview", "/", "light"),
        ("overview-dark", "/", "dark"),
        ("jobs", "/jobs", "light"),
        ("job", f"/jobs/{job}", "dark"),
    ):
        page = _tab(served, chromium, theme, SIZES["wide"])
        page.goto(address)
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        page.screenshot(path=folder / f"{name}.png")
        page.context.close()
        assert (folder / f"{name}.png").stat().st_size > 20_000


@pytest.mark.parametrize("path", ["/login", "/nothing-here", "/api/v1"])
def test_so_are_the_login_and_what_is_not_there(served: Served, chromium: Browser, path: str) -> None:
    for theme in ("light", "dark"):
        page = _tab(served, chromium, theme, SIZES["phone"], logged_in=path != "/login")
        page.goto(path)
        assert page.locator("h1").count() == 1
        assert _violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES["phone"]
        page.context.close()


def _tab(served: Served, chromium: Browser, theme: Any, width: int, logged_in: bool = True) -> Page:
    context = chromium.new_context(
        base_url=served.url, viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce"
    )
    context.set_default_timeout(DEADLINE * 1000)
    page = context.new_page()
    if logged_in:
        login(page, served)
    return page


def _crawl(served: Served, chromium: Browser) -> dict[str, str]:
    """Follow links from the overview until there are no new kinds of pages; one address of each kind."""
    page = _tab(served, chromium, "light", SIZES["wide"])
    found = {"/": "/"}
    left = ["/"]
    while left:
        page.goto(left.pop(0))
        for href in page.locator("a[href]").evaluate_all("all => all.map(a => a.getAttribute('href'))"):
            path = urlsplit(href).path
            kind = next((name for name, pattern in PATTERNS.items() if pattern.match(path)), None)
            if kind and kind not in found:
                found[kind] = href
                left.append(href)
        if "/bulk/new" in found and "/bulk/{id}" not in found:
            page.goto(re.sub("do=[a-z]+", "do=retry", found["/bulk/new"]) + "state:dead tag:odd")
            page.get_by_role("button", name="Retry them").click()
            found["/bulk/{id}"] = urlsplit(page.url).path
    page.context.close()
    return found


def _violations(page: Page) -> list[str]:
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {one['help']}: {node['html'][:200]} {node.get('failureSummary', '')[:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]
