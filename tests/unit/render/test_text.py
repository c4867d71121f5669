import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock.render.text import clip, quoted, visible, visible_lines, width, wrap


def test_controls_are_spelled_out_and_widths_and_cuts_follow_the_terminal():
    assert visible("a\x00\x1b\t\x7f\u202e\u00a0") == "a␀␛␉⟨U+007F⟩⟨U+202E⟩⟨U+00A0⟩"

    assert [width(text) for text in ("abc", "漢字", "e\u0301", "\uff21\uff22")] == [3, 4, 1, 4]

    assert clip("漢字漢字", 5) == "漢字…"
    assert clip("abc", 3) == "abc"


def test_a_name_that_could_be_taken_for_words_around_it_is_quoted():
    plain = "out/été-2.csv"
    assert [quoted(name) for name in (plain, "", "a b", "a,b", "it's")] == [
        plain,
        "",
        "'a b'",
        "'a,b'",
        '"it\'s"',
    ]


@pytest.mark.parametrize("first", [0xFE00, 0xE0100])
def test_nothing_hides_in_a_text_that_is_looked_at(first):
    """Variation selectors: 256 of them can hold a byte each, and none is drawn."""
    hidden = "".join(map(chr, range(first, first + 16)))
    assert visible(f"a{hidden}b") == f"a{''.join(f'⟨U+{ord(char):04X}⟩' for char in hidden)}b"


@pytest.mark.parametrize("code", [0xAD, 0x34F, 0x17B4, 0x17B5, 0x180B, 0x180F, 0x2065, 0x16FE4])
def test_what_draws_nothing_is_spelled_out(code):
    assert visible(f"a{chr(code)}b") == f"a⟨U+{code:04X}⟩b"


@pytest.mark.parametrize("char", ["x", "\u6f22", "\u0301"])
def test_a_word_of_any_length_is_broken_in_one_walk(char):
    word = char * 300_000
    started = time.process_time()
    lines = wrap(word, columns=80)
    assert time.process_time() - started < 10  # line by line over what is left, it took minutes
    assert "".join(lines) == word
    assert max(map(width, lines)) <= 80


@given(st.text(st.characters(), max_size=200), st.integers(20, 100))
def test_wrapped_lines_fit_and_lose_nothing(text, columns):
    lines = wrap(text, indent="  ", hanging="    ", columns=columns)
    assert all(width(line) <= columns for line in lines)
    shown = "".join(visible(part) for part in text.split("\n"))
    assert "".join("".join(lines).split()) == "".join(shown.split())


def test_only_a_newline_begins_a_line_of_a_diff():
    """Python runs what follows a carriage return as a line, and here it would look removed."""
    assert visible_lines("+x = 0\r-evil()\n-y\u2028+z\x0b\x85\n") == (
        "+x = 0␍-evil()\n-y⟨U+2028⟩+z␋⟨U+0085⟩"
    )
