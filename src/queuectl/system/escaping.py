"""Text that cannot act where it is shown, on a terminal or on a page. Loads nothing."""

from __future__ import annotations


def visible(text: str, besides: str = "") -> str:
    """What cannot be seen is spelled out: control characters, and those that turn the direction of writing.

    `besides`: characters that may stay, such as line ends.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in besides else c.encode("unicode_escape").decode() for c in text)


def visible_lines(text: str) -> str:
    """The same for text of several lines, which keeps its line ends and tabs."""
    return visible(text, "\n\t")
