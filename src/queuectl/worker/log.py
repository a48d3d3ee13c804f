"""A log line is an event and its fields: `run ended job=k3f9x2m7qa run=3 next=failed`."""

from __future__ import annotations

import sys

from queuectl.system.times import iso, now_ms


class Log:
    """Writes lines to standard error. A chatty one also tells of all that goes well."""

    def __init__(self, name: str, chatty: bool) -> None:
        self.name = name
        self.chatty = chatty

    def tell(self, event: str, **fields: object) -> None:
        words = "".join(f" {key}={_word(value)}" for key, value in fields.items())
        if sys.stderr is None:  # closed by whoever started us
            return
        try:
            sys.stderr.write(f"{iso(now_ms())} {self.name} {event}{words}\n")
            sys.stderr.flush()
        except OSError:  # a full disk or a closed terminal must not stop the work
            pass

    def mention(self, event: str, **fields: object) -> None:
        if self.chatty:
            self.tell(event, **fields)


def _word(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text and text else repr(text)
