from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.web.ansi import PLAIN, Style, overwritten, painted


def shown(line: str, style: Style = PLAIN) -> str:
    return str(painted(line, style)[0])


@pytest.mark.parametrize(
    ("line", "markup"),
    [
        ("plain", "plain"),
        ("a <b> & \"c\" 'd'", "a &lt;b&gt; &amp; &#34;c&#34; &#39;d&#39;"),
        ("\x1b[31mred\x1b[0m", '<span class="f1">red</span>'),
        ("\x1b[1;4;92;44mx", '<span class="bold underline f10 b4">x</span>'),
        ("\x1b[31m\x1b[mx", "x"),
        ("\x1b[1m\x1b[22mx\x1b[39;49m", "x"),
        ("\x1b[2;3;9mx\x1b[23my", '<span class="dim italic strike">x</span><span class="dim strike">y</span>'),
        ("\x1b[7;31mx", '<span class="inverse b1">x</span>'),
        ("\x1b[38;5;9mx\x1b[38;5;196my", '<span class="f9">xy</span>'),
        ("\x1b[38;2;250;5;5mx", '<span class="f9">x</span>'),
        ("\x1b[38:2::250:5:5mx", '<span class="f9">x</span>'),
        ("\x1b[48:5:21mx", '<span class="b4">x</span>'),
        ("\x1b[48;5;232mx\x1b[48;5;255my", '<span class="b0">x</span><span class="b7">y</span>'),
        ("\x1b[38;5;999mx", "x"),
        ("\x1b[38;2;1mx", "x"),
        ("\x1b[4:3mx\x1b[4:0my", '<span class="underline">x</span>y'),
        ("\x1b[" + "9" * 5000 + "mx", "x"),
        ("\x1b[2K\x1b[1A\x1b[?25lx\x1b[10;20H", "x"),
        ("\x1b[6n", '<span class="ctl">\\x1b</span>[6n'),
        ("\x1b]0;title\x07x", '<span class="ctl">\\x1b</span>]0;title<span class="ctl">\\x07</span>x'),
        ("a\tb", "a\tb"),
        ("\u202egpj.exe", '<span class="ctl">\\u202e</span>gpj.exe'),
        ("\x1b", '<span class="ctl">\\x1b</span>'),
        ("10%\r50%\r100%\r", "100%"),
        ("\x1b[31m10%\r50%", '<span class="f1">50%</span>'),
        ("windows\r", "windows"),
        ("grüße 🎉 ���", "grüße 🎉 ���"),
    ],
)
def test_a_line_as_markup(line: str, markup: str) -> None:
    assert shown(line) == markup


def test_a_style_goes_on_to_the_next_line() -> None:
    markup, style = painted("\x1b[1;91mone")
    assert markup == '<span class="bold f9">one</span>'
    assert style.sgr == "1;91"
    assert shown("two", Style.read(style.sgr)) == '<span class="bold f9">two</span>'
    assert painted("\x1b[0m", style)[1] == PLAIN


@pytest.mark.parametrize("line", [b"", b"one", b"one\r", b"10%\r20%\r30%", b"10%\r\r"])
def test_what_was_written_over_need_not_be_kept(line: bytes) -> None:
    hidden = overwritten(line)
    before = painted(line[:hidden].decode())[1]
    assert shown(line[hidden:].decode(), before) == shown(line.decode())


class Reader(HTMLParser):
    """Accepts spans with a class, and text."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.open = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag == "span"
        assert [name for name, _ in attrs] == ["class"]
        self.open += 1

    def handle_endtag(self, tag: str) -> None:
        self.open -= 1

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


PIECES = st.sampled_from(
    ["\x1b[", "\x1b]", "38;5;", "48:2:", "1", "255", ";", ":", "m", "K", "?", "\r", "\x00", "\x9b"]
)


@given(
    st.lists(PIECES | st.text("<>&\"'abc é\u2028\x85", max_size=5), max_size=30).map("".join), st.text(";:0123489m")
)
def test_nothing_printed_can_act_on_the_page(line: str, sgr: str) -> None:
    markup, style = painted(line, Style.read(sgr))
    reader = Reader()
    reader.feed(str(markup))
    reader.close()
    assert reader.open == 0
    assert reader.text.replace("\t", "").isprintable()
    assert Style.read(style.sgr) == style
