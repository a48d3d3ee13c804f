"""Shell completion."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from queuectl.cli.app import COMPLETE, cli
from queuectl.cli.render import say


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print the completion script for a shell.

    \b
    bash:  queuectl completion bash > ~/.local/share/bash-completion/completions/queuectl
    zsh:   queuectl completion zsh > "${fpath[1]}/_queuectl"
    fish:  queuectl completion fish > ~/.config/fish/completions/queuectl.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    say(kind(cli, {}, "queuectl", COMPLETE).source())
