"""Notifications: whom to tell when jobs complete, fail or die."""

from __future__ import annotations

import json
import os
import sys
import time

import click

from queuectl.cli.app import json_option, jsonl_option, with_store
from queuectl.cli.enqueue_core import mention_missing_worker
from queuectl.cli.render import BOLD, ago, emit_json, emit_list, listed, note, paint, say, table, visible
from queuectl.cli.streams import changed
from queuectl.errors import InvalidInput, QueuectlError, Untrusted
from queuectl.hooks import hook, webhook_client, webhook_signing
from queuectl.hooks.hook import Hook
from queuectl.hooks.webhook_client import Answer
from queuectl.jobs import job_spec
from queuectl.store import Store
from queuectl.system import private_files, times

SHOWN = 5
SECRET_BYTES = 32
LARGEST_FILE = 1000


@click.group("hook")
def hook_command() -> None:
    """Be told when jobs complete, fail or die: by a webhook, or by a command. Workers see to it."""


@hook_command.command("add")
@click.argument("name")
@click.argument("words", nargs=-1, metavar="URL | -- COMMAND...")
@click.option(
    "--on", "events", multiple=True, metavar="EVENT",
    help="Tell when a job has completed, failed (and will be tried again) or is dead; repeatable.  [default: dead]",
)  # fmt: skip
@click.option("-q", "--queue", help="Only of the jobs of this queue.")
@click.option("--for-named", "only_named", is_flag=True, help="Only of jobs that name it: enqueue --notify NAME.")
@click.option(
    "--secret-file", type=click.Path(), metavar="FILE",
    help="Sign with the secret in this file (whsec_…).  [default: a new one, which is printed once]",
)  # fmt: skip
@click.option("--allow-private", is_flag=True, help="The URL may lead to this machine or into a private network.")
@json_option
@with_store
def add(
    store: Store,
    name: str,
    words: tuple[str, ...],
    events: tuple[str, ...],
    queue: str | None,
    only_named: bool,
    secret_file: str | None,
    allow_private: bool,
    as_json: bool,
) -> None:
    """Make a hook.

    \b
    queuectl hook add pager https://example.com/hook --on dead
    queuectl hook add chat https://example.com/chat --on completed --on dead --queue deploy
    queuectl hook add mail --on dead -- 'mail -s "$QUEUECTL_EVENT_JOB: $QUEUECTL_EVENT_ERROR" ops </dev/null'
    queuectl hook add done --on completed --for-named -- ./celebrate
    """
    chosen = [word for text in events for word in text.replace(",", " ").split()] if events else ["dead"]
    where = _where(words, secret_file, allow_private)
    new = store.hooks.add(name, chosen, queue=queue, only_named=only_named, allow_private=allow_private, **where)
    lost = "" if secret_file or not new.secret else ", with a secret that is told once: remove it, and add it again"
    changed(f"Hook {new.name} is added{lost}")
    if as_json:
        emit_json({**new.as_json(), **({} if secret_file else {"secret": new.secret})})
    else:
        does = f"posts to {webhook_signing.shown(new.url)}" if new.url else f"runs {visible(new.command or '')}"
        say(f"Hook {new.name}: on {', '.join(new.events)}, of {_whom(new)}, it {does}")
        if new.secret and not secret_file:
            say(f"Secret: {new.secret}")
            note("Keep it for the receiver, who verifies the signatures; it is not shown again.")
    mention_missing_worker(store, [hook.QUEUE])


def _where(words: tuple[str, ...], secret_file: str | None, allow_private: bool) -> dict[str, str | None]:
    """A URL with its secret, or a command."""
    if not words:
        raise InvalidInput("say where to", "give a URL, or a command behind --")
    url = " ".join(words).strip()
    if url.lower().startswith(("http://", "https://")) or ("://" in url and " " not in url):
        host = webhook_signing.target(url).host
        if not allow_private:
            webhook_signing.refuse_plainly_private(host)
        secret = _read_secret(secret_file) if secret_file else webhook_signing.secret_from(os.urandom(SECRET_BYTES))
        return {"url": url, "secret": secret}
    if secret_file or allow_private:
        raise InvalidInput("--secret-file and --allow-private are for URLs", "leave them out")
    return {"command": words[0] if len(words) == 1 else job_spec.quote(words)}


def _read_secret(path: str) -> str:
    try:
        with open(private_files.open_given(path), encoding="ascii") as file:
            return webhook_signing.checked_secret(file.read(LARGEST_FILE).strip())
    except Untrusted:
        raise
    except OSError as error:
        raise InvalidInput(f'cannot read "{path}": {error.strerror}', "check the name") from None
    except UnicodeDecodeError:
        return webhook_signing.checked_secret("")


@hook_command.command("list")
@json_option
@jsonl_option
@with_store
def list_hooks(store: Store, as_json: bool, jsonl: bool) -> None:
    """List the hooks: of what they are told, and where."""
    found = store.hooks.all()
    if as_json or jsonl:
        emit_list((one.as_json() for one in found), jsonl)
    elif found:
        rows = [
            [
                one.name,
                " ".join(one.events),
                _whom(one),
                f"paused{': ' + one.reason if one.reason else ''}" if one.paused else "active",
                webhook_signing.shown(one.url) if one.url else one.command or "",
            ]
            for one in found
        ]
        table(["Hook", "On", "Of", "State", "To"], rows, stretch=("State", "To"))
    else:
        note("There are no hooks yet. Make one: queuectl hook add pager https://example.com/hook --on dead")


@hook_command.command("show")
@click.argument("name")
@json_option
@with_store
def show(store: Store, name: str, as_json: bool) -> None:
    """Show a hook, and what became of its last notifications."""
    found = store.hooks.get(name)
    last = store.views.tagged(found.tag, SHOWN)
    if as_json:
        emit_json({**found.as_json(), "last": [job.as_json() for job in last]})
        return
    paused = f" (paused{': ' + visible(found.reason) if found.reason else ''})" if found.paused else ""
    lines = [("Hook", paint(found.name, BOLD) + paused), ("On", ", ".join(found.events)), ("Of", _whom(found))]
    if found.url:
        lines += [("URL", visible(found.url)), ("Signed", "yes, with its secret")]
        lines += [("Private", "allowed")] if found.allow_private else []
    else:
        lines += [("Command", visible(found.command or "")), ("Folder", visible(found.cwd or "the worker's"))]
    for field, text in lines:
        say(f"{field + ':':<10}{text}")
    if last:
        say(paint("Last:", BOLD))
        rows = [
            [
                ago(job.created_at),
                job.env.get("QUEUECTL_EVENT", ""),
                job.env.get("QUEUECTL_EVENT_JOB", ""),
                job.state,
                f"{job.attempts}/{job.max_retries}",
                job.id,
            ]
            for job in last
        ]
        table(["When", "Event", "Of Job", "State", "Attempts", "Job ID"], rows, stretch=("Of Job",))


@hook_command.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@with_store
def remove(store: Store, names: tuple[str, ...]) -> None:
    """Forget hooks. Webhooks that were not sent yet will not be."""
    store.hooks.remove(names)
    changed(f"Removed: {listed(names)}")
    for name in names:
        say(f"Hook {name} removed.")


@hook_command.command("pause")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@with_store
def pause(store: Store, names: tuple[str, ...]) -> None:
    """Let hooks rest: of what ends meanwhile they are not told."""
    paused = store.hooks.pause(names, paused=True)
    changed(f"Paused: {listed(names)}")
    for one in paused:
        say(f"Hook {one.name} is paused.")


@hook_command.command("resume")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@with_store
def resume(store: Store, names: tuple[str, ...]) -> None:
    """Let hooks go on."""
    resumed = store.hooks.pause(names, paused=False)
    changed(f"Resumed: {listed(names)}")
    for one in resumed:
        say(f"Hook {one.name} goes on.")


@hook_command.command("test")
@click.argument("name")
@json_option
@with_store
def test(store: Store, name: str, as_json: bool) -> int:
    """Try a hook out: post to its URL now and tell what came back; enqueue its command."""
    found = store.hooks.get(name)
    if not found.url:
        id = store.hooks.try_out(name)
        changed(f"Stored as {id}")
        emit_json({"job": id}) if as_json else say(f"Enqueued {id}: {visible(found.command or '')}")
        mention_missing_worker(store, [hook.QUEUE])
        return 0
    body = json.dumps(hook.example(found, times.now_ms())).encode()
    answer = _post(found, job_spec.new_id(), body)
    changed(f"Posted to {webhook_signing.target(found.url).authority}, which said {answer}")
    if as_json:
        emit_json({"status": answer.status, "reason": answer.reason, "ok": answer.ok, "text": answer.text})
    else:
        receiver = webhook_signing.target(found.url).authority
        say(f"{receiver} said {visible(str(answer))} ({times.span(answer.seconds)}).")
    return 0 if answer.ok else 1


@hook_command.command("send", hidden=True)
@click.argument("name")
@with_store
def send(store: Store, name: str) -> None:
    """Post the notification that this job is. Run by workers."""
    id, told = os.environ.get("QUEUECTL_JOB_ID"), os.environ.get("QUEUECTL_EVENT_JSON")
    if not id or told is None:
        raise InvalidInput("there is nothing to send", f"workers send; to try it: queuectl hook test {name}")
    found = store.hooks.get(name)
    if not found.url:
        raise InvalidInput(f'the hook "{name}" has no URL', "it was replaced by another one of this name")
    answer = _post(found, id, told.encode())
    changed(f"Posted to {webhook_signing.target(found.url).authority}, which said {answer}")
    if answer.status == webhook_client.GONE:  # "stop sending", in the words of Standard Webhooks
        store.hooks.pause([name], paused=True, reason="410 Gone")
        sys.stderr.write(f"{visible(str(answer))}\nThe hook {name} is paused.\n")
    elif not answer.ok:
        raise QueuectlError(f"{webhook_signing.target(found.url).authority} said {answer}", "it is tried again")
    else:
        say(visible(str(answer)))


def _post(found: Hook, id: str, body: bytes) -> Answer:
    assert found.url is not None
    assert found.secret is not None
    headers = webhook_signing.headers(id, int(time.time()), body, found.secret)
    return webhook_client.post(found.url, headers, body, found.allow_private)


def _whom(one: Hook) -> str:
    if one.only_named:
        return "jobs that name it"
    return f"jobs in {one.queue}" if one.queue else "all jobs"
