"""Where the queue lives: by option, by environment, by default."""

from __future__ import annotations

from pathlib import Path

import pytest

from queuectl.errors import InvalidInput
from queuectl.store import open_store
from queuectl.store.factory import default_path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without any settings, standing in a folder of their own."""
    for name in ("QUEUECTL_DB", "XDG_DATA_HOME", "QUEUECTL_LOG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def place(url: str | None) -> str:
    store = open_store(url)
    store.close()
    return store.engine.url


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("queue.db", "queue.db"),
        ("./sub/queue.db", "sub/queue.db"),
        ("~/queue.db", "queue.db"),
        ("sqlite:///queue.db", "queue.db"),
        ("a:b.db", "a:b.db"),
        ("with space é.db", "with space é.db"),
        ("file:x?mode=ro", "file:x?mode=ro"),  # a name like any other, not an SQLite URI
    ],
)
def test_a_path_or_an_sqlite_url_is_a_file(home: Path, url: str, found: str) -> None:
    assert place(url) == str(home / found)
    assert (home / found).is_file()


def test_an_absolute_url_has_four_slashes(home: Path) -> None:
    assert place(f"sqlite:///{home}/queue.db") == str(home / "queue.db")


def test_the_option_comes_before_the_environment_and_that_before_the_default(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert place(None) == default_path() == str(home / ".local/share/queuectl/queue.db")
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "xdg"))
    assert place(None) == str(home / "xdg/queuectl/queue.db")
    monkeypatch.setenv("QUEUECTL_DB", str(home / "env.db"))
    assert place(None) == str(home / "env.db")
    assert place("option.db") == str(home / "option.db")


def test_without_a_home_nothing_is_made_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a user id without an entry in passwd
    with pytest.raises(InvalidInput, match="no home folder"):
        open_store(None)
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("url", ["sub/", "sqlite://", "sqlite:///", "mysql://user:secret@host/db", "http://x"])
def test_what_names_no_database_is_refused_without_naming_secrets(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        open_store(url)
    assert refused.value.hint
    assert "secret" not in refused.value.message


def test_a_link_to_the_queue_is_the_queue(home: Path) -> None:
    store = open_store("real/queue.db")
    (home / "link.db").symlink_to(home / "real/queue.db")
    linked = open_store("link.db")
    assert (linked.engine.url, linked.engine.log_dir, linked.engine.run_dir) == (
        store.engine.url,
        store.engine.log_dir,
        store.engine.run_dir,
    )
    linked.close()
    store.close()


def test_logs_lie_beside_the_queue_unless_told_otherwise(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("queue.db")
    assert store.engine.log_dir == str(home / "logs")
    store.close()
    monkeypatch.setenv("QUEUECTL_LOG_DIR", "/var/log/elsewhere")
    store = open_store("queue.db")
    assert store.engine.log_dir == "/var/log/elsewhere"
    store.close()


def test_a_relative_log_folder_stays_where_it_was_meant(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUECTL_LOG_DIR", "mylogs")
    store = open_store("queue.db")
    assert store.engine.log_dir == str(home / "mylogs")
    store.close()
