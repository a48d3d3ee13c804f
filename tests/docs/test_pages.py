"""The docs show what the code does: reference pages, README transcripts, examples, links."""

from __future__ import annotations

import doctest
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import queuectl.client.queue

ROOT = Path(__file__).parents[2]
MARKDOWN = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = load_generator()


@pytest.mark.parametrize("name", generate.PAGES)
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    written = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert written == generate.PAGES[name](), "run .venv/bin/python docs/generate.py"


def test_the_readme_shows_what_really_happens() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert normal(generate.played(page)) == normal(page)


def normal(page: str) -> list[str]:
    """The page without what differs from run to run: ids, times, process numbers, widths."""
    page = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "MOMENT", page)
    page = re.sub(r"(\b[A-Z][a-z]{2} )?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \w+", "MOMENT", page)
    page = re.sub(r"(?<=worker=)\w+|\b[a-z2-7]{10}\b", "ID", page)
    page = re.sub(r"\b(in )?\d[\d.]*(ms|[smhd])\b( \d+[smh]\b)?( ago)?|\bnow\b", "SPAN", page)
    page = re.sub(r"(?<=pid )\d+", "PID", page)
    page = re.sub(r"ID +\d+ +\S+ +idle", "ID PID HOST idle", page)
    return [re.sub(r" +", " ", line).strip() for line in page.splitlines()]


def test_the_python_examples_work(tmp_path: Path) -> None:
    finder = doctest.DocTestFinder()
    runner = doctest.DocTestRunner()
    for number, test in enumerate(finder.find(queuectl.client.queue, "client")):
        test.globs["path"] = str(tmp_path / f"{number}.db")
        runner.run(test)
    assert runner.tries > 5
    assert runner.failures == 0


def test_the_readmes_python_example_works(tmp_path: Path) -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    example = example.replace("make test", "echo made")
    bin = Path(sys.executable).parent
    env = {"HOME": str(tmp_path), "PATH": f"{bin}:/usr/bin:/bin"}
    subprocess.run([bin / "queuectl", "worker", "start"], env=env, check=True, capture_output=True)
    try:
        done = subprocess.run([sys.executable, "-c", example], env=env, check=True, capture_output=True, timeout=60)
    finally:
        subprocess.run([bin / "queuectl", "worker", "stop", "--now"], env=env, check=True, capture_output=True)
    assert done.stdout == b"completed 0 made\n\n"


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page}: {target}"


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_is_named_exists(page: Path) -> None:
    for file, test in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text(encoding="utf-8")):
        assert (ROOT / file).exists(), f"{page}: {file}"
        assert f"def {test}" in (ROOT / file).read_text(encoding="utf-8"), f"{page}: {file}::{test}"


def test_no_page_sends_anyone_to_the_wrong_package() -> None:
    for page in MARKDOWN:
        assert not re.search(r"pip install queuectl(?!-cli)", page.read_text(encoding="utf-8"))
