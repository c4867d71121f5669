import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock.host.output import gateway
from cellblock.host.output.gateway import clean_stream
from cellblock.host.output.text import clean_and_cut, clean_line, clean_text, split_tail

KEPT = re.compile("\x1b\\[[0-9;:]*m|\x1b\\[[0-2]?K")


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "\x1b[31mred\x1b[0m",
        "\x1b[38;5;196mx\x1b[38:2::1:2:3mx\x1b[m",
        "10%\r20%\r\n",
        "\x1b[K\x1b[2K",
        "12\b\b34\t5\n",
        "déjà vu 漢字 🙂",
    ],
)
def test_colours_and_line_redraws_stay(text):
    assert clean_stream(text) == text


def test_only_newlines_end_a_line_and_carriage_returns_of_streams_stay():
    """Else what an exporter indents, or marks as code, ends before the text does."""
    ends = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\rh\r\ni"
    assert clean_stream(ends) == "a\nb\ncdefg\rh\r\ni"
    assert clean_text(ends) == "a\nb\ncdefg\nh\ni"
    for mime in ("text/plain", "text/latex", "text/markdown"):
        assert gateway.sanitized({mime: ends})[mime] == "a\nb\ncdefg\nh\ni"
    error = gateway.clean_error("E", "a\rb", ["a\r\u2028b"])
    assert error == {"ename": "E", "evalue": "a\nb", "traceback": ["a\nb"]}


NOT_KEPT = [
    "\x1b]0;title\x07",
    "\x1b]0;title\x1b\\",
    "\x1b]52;c;cm0gLXJmIC8K\x07",
    "\x1bP$q\x1b\\",
    "\x1b_G payload\x1b\\",
    "\x1b^private\x1b\\",
    "\x1bXstring\x1b\\",
    "\x1b[2J",
    "\x1b[3J",
    "\x1b[H",
    "\x1b[1;1H",
    "\x1b[5A",
    "\x1b[?1049h",
    "\x1b[?25l",
    "\x1b[6n",
    "\x1b[c",
    "\x1b[20t",
    "\x1b[1000L",
    "\x1b[4i",
    "\x1bc",
    "\x1b(0",
    "\x1b#8",
    "\x1b7",
    "\x9b",
    "\x9d",
    "\x90",
    "\x07",
    "\x00",
    "\x0c",
    "\x0e",
    "\x7f",
    "\x1b",
    "\x1b[" + "1;" * 1_000 + "m",
]


def test_no_other_sequence_passes():
    for sequence in NOT_KEPT:
        assert clean_stream(f"a{sequence}b".replace("\x1bb", "\x1b")) in ("ab", "a"), sequence


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]8;;http://evil\x1b\\text\x1b]8;;\x1b\\", "text"),
        # An unfinished string does not swallow what follows.
        ("\x1b]0;title\nnext", "0;title\nnext"),
        # What is dropped can't leave a new sequence.
        ("\x1b\x00[2J\x1b\x1b[2J\x1b\x1b[31m[2J", "[2J\x1b[31m[2J"),
        ("a\udc80", "a\ufffd"),
    ],
)
def test_what_is_dropped_takes_nothing_along_and_leaves_nothing(text, shown):
    assert clean_stream(text) == shown


def test_a_stream_over_its_bound_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(gateway, "MAX_STREAM", 10)
    text = clean_stream("x" * 100)
    assert text == "x" * 10 + "\n[cellblock: 90 more characters left out]\n"


@pytest.mark.parametrize(
    ("text", "head", "tail"),
    [
        ("a\x1b", "a", "\x1b"),
        ("a\x1b[31", "a", "\x1b[31"),
        ("a\x1b[31m", "a\x1b[31m", ""),
        ("a\x1b]0;", "a\x1b]0;", ""),
        ("a", "a", ""),
        ("\x1b[" + "1" * 80, "\x1b[" + "1" * 80, ""),
    ],
)
def test_a_colour_cut_in_two_waits_for_its_end(text, head, tail):
    assert split_tail(text) == (head, tail)


def test_hostile_text_takes_linear_time():
    for unit in ["\x1b]", "\x1b[", "\x1b[1;", "\x1b]0;x", "\x1b ", "\x1b", "\x1bP"]:
        started = time.process_time()
        clean_text(unit * (200_000 // len(unit)))
        assert time.process_time() - started < 2, unit


@given(st.text(st.sampled_from("\x1b[]0;mKJHP\\\x07\x9b\x9c\x00\r\nab\udc80é"), max_size=60))
def test_only_kept_sequences_are_left_and_cleaning_twice_changes_nothing(text):
    clean = clean_text(text)
    clean.encode()
    assert "\x1b" not in KEPT.sub("", clean)
    assert not re.search("[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]", clean)
    assert clean_text(clean) == clean


def test_what_is_cut_is_not_cleaned_first():
    colour = "\x1b[1m"
    assert clean_line(colour * 100 + "x", 10) == ""
    assert clean_line(colour * 8 + "x", 10) == "x"
    assert clean_and_cut("\0" * 100 + "x", 10) == "\n[cellblock: 61 more characters left out]\n"
    assert clean_and_cut("\0" * 39 + "x", 10) == "x"
