"""`serve`: the dashboard, the HTTP API and the metrics."""

from __future__ import annotations

import sys

import click

from queuectl.cli.app import chosen_db
from queuectl.cli.render import BOLD, paint, say, visible
from queuectl.errors import InvalidInput
from queuectl.system import times

DEFAULT_PORT = 8642


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="0: a free one.")
@click.option(
    "--token-file",
    type=click.Path(),
    metavar="FILE",
    help="Who may come in, one a line: NAME viewer|operator|admin TOKEN. An admin's may also be in $QUEUECTL_TOKEN.",
)
@click.option("--allow-host", multiple=True, metavar="NAME", help="A name it also answers to, as a proxy sends it.")
@click.option("--open", "open_browser", is_flag=True, help="Open the dashboard in a browser.")
@click.option("--db", type=click.Path(), metavar="PATH", help="The queue to use.")
@click.pass_context
def serve_command(
    ctx: click.Context,
    /,
    host: str,
    port: int,
    token_file: str | None,
    allow_host: tuple[str, ...],
    open_browser: bool,
    db: str | None,
) -> None:
    """Serve the dashboard, the HTTP API and the metrics of a queue, until Ctrl-C.

    Whoever may enqueue can run any command as you. So it listens on this machine alone, and lets in only who opens
    the link it prints, or brings a token. Any other address needs tokens of your own: see --token-file.
    """
    try:
        from queuectl.web import allowed_hosts, auth, server, tokens
        from queuectl.web.app import make_app
        from queuectl.web.store_pool import Stores
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn", "jinja2"):
            raise
        raise InvalidInput(
            f"serve needs the package {error.name}, which is not installed",
            f"{sys.executable} -m pip install starlette uvicorn jinja2",
        ) from None

    known, where = tokens.given_tokens(token_file), "It is the one you gave."
    own = not known
    if own and not allowed_hosts.is_loopback(host):
        raise InvalidInput(
            f"on {host} others can reach it, and there is no token",
            "give --token-file FILE or set QUEUECTL_TOKEN: openssl rand -hex 32",
        )
    stores = Stores(chosen_db(ctx, db))
    if own:
        token, file = tokens.own_token(stores.own_folder)
        known, where = [token], f"It is in {file}, which only you can read."
    entry = auth.Access(known, tokens.signing_key(stores.own_folder))
    listening = server.listen(host, port)
    port = listening.getsockname()[1]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    app = make_app(stores, entry, allowed_hosts.Hosts(host, port, allow_host), port, where)
    say(f"Serving {visible(stores.name)} on {paint(address, BOLD)}")
    if own or open_browser or sys.stdout.isatty():  # not into the journal of a service, for others to find
        link = f"{address}/login?code={entry.login_code()}"
        say(f"Log in with this link, once and within {times.span(auth.LINK_SECONDS)}: {link}")
    say(f"Or with a token, also for programs. {visible(where)}" if own else "Log in with your token.")
    say("Ctrl-C ends it; the queue goes on.")
    sys.stdout.flush()
    if open_browser:
        import webbrowser

        webbrowser.open(link)
    server.run(app, listening)
