"""A cell's head is shown as it comes, its tail is held; the two are within the cap."""

import pytest

from cellblock.host.cell.quota import LEAST_TEXT, MOST_TAIL, DisplayTail, EndOfText, Quota, TextTail

CAP = 8_000
ROOM = CAP // 8


def quota(stdout=CAP, display=CAP):
    return Quota({"stdout": stdout, "stderr": CAP, "display": display})


def said(count, pieces):
    """Return what is shown at once, at the end, and how many bytes are left out between."""
    one = quota(count)
    head = "".join(one.text("stdout", piece) for piece in pieces)
    end = one.end_of_text("stdout", lambda text: text)
    return head, end.text, end.left_out


def lines(count):
    return [f"this is line {number:06}".ljust(LEAST_TEXT - 1) + "\n" for number in range(count)]


def test_what_fits_is_shown_as_it_comes_and_all_of_it():
    pieces = lines(93)
    assert said(CAP, pieces) == ("".join(pieces), "", 0)
    assert said(None, lines(10_000)) == ("".join(lines(10_000)), "", 0)


def test_what_fits_with_the_tails_share_is_shown_at_the_end_and_nothing_left_out():
    pieces = lines(123)
    head, tail, left_out = said(CAP, pieces)
    assert head + tail == "".join(pieces)
    assert tail
    assert left_out == 0


@pytest.mark.parametrize("wide", ["", "\u00e9", "\U0001f600"])
@pytest.mark.parametrize("join", [False, True])
def test_head_tail_and_what_is_left_out_add_up_within_the_cap(wide, join):
    pieces = [wide + piece for piece in lines(3_000)]
    text = "".join(pieces)
    head, tail, left_out = said(CAP, [text] if join else pieces)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert tail.startswith(f"{wide}this is line")
    sizes = [len(part.encode()) for part in (head, tail, text)]
    assert sizes[0] + sizes[1] + left_out == sizes[2]
    assert CAP - 200 < sizes[0] + sizes[1] <= CAP


def test_a_line_without_end_is_cut_between_letters():
    head, tail, left_out = said(CAP, ["\u00e9" * 100_000])
    assert head == "\u00e9" * (CAP - ROOM >> 1)
    assert tail == "\u00e9" * (ROOM >> 1)
    assert left_out == 200_000 - CAP


def test_no_sequence_is_cut_at_the_end_of_the_head():
    text = "x" * (CAP - ROOM - 3) + "\x1b[31mred\x1b[0m" + "y" * CAP
    head, _, _ = said(CAP, [text])
    assert head == "x" * (CAP - ROOM - 3)


@pytest.mark.parametrize("cap", [1, 7, 8, 100, 1_000])
def test_a_small_cap_is_kept_too(cap):
    head, tail, left_out = said(cap, lines(100))
    assert len(head) + len(tail) <= cap
    assert left_out == len("".join(lines(100))) - len(head) - len(tail)


@pytest.mark.parametrize("size", [ROOM // 2, ROOM - 1, ROOM, ROOM + 1])
def test_pieces_that_go_whole_are_counted(size):
    _, tail, left_out = said(CAP, ["x" * (CAP - ROOM), *["y" * size] * 3])
    assert tail == "y" * ROOM
    assert left_out == 3 * size - ROOM


def test_a_tail_holds_little_of_a_flood_of_any_pieces():
    for piece in ("x", "x" * 1_023, "x" * 200_000, "\U0001f600" * 50_000):
        tail = TextTail(MOST_TAIL["stdout"])
        for _ in range(20_000 if len(piece) < 2_000 else 20):
            tail.add(piece)
        assert len(tail._pieces) < 200
        assert sum(map(len, tail._pieces)) < 2 * MOST_TAIL["stdout"]


def test_a_second_end_shows_what_came_since_and_stays_within_the_cap():
    one, size = quota(), 0
    for _ in range(5):
        for piece in lines(1_000):
            size += len(one.text("stdout", piece))
        size += len(one.end_of_text("stdout", lambda text: text).text)
    assert size <= CAP


@pytest.mark.parametrize("join", [False, True])
def test_the_head_ends_with_a_line_and_the_tail_begins_with_one(join):
    head, tail, left_out = said(CAP + 7, ["".join(lines(3_000))] if join else lines(3_000))
    assert left_out
    assert head.endswith("\n")
    assert not {*head.splitlines(), *tail.splitlines()} - set("".join(lines(3_000)).splitlines())


@pytest.mark.parametrize(
    ("pieces", "cut"),
    [
        (lines(3_000), (False, False)),
        # The line was flushed in two pieces, and the first is shown.
        (
            ["x" * (CAP - ROOM - 2 * LEAST_TEXT - 1), "\n", "row ", "y" * 99 + "\n", *lines(3_000)],
            (True, False),
        ),
        (["x" * 9 * CAP], (True, True)),
        ([*lines(31), "x" * 9 * CAP], (True, True)),
        ([*lines(93), "x" * 9 * CAP], (False, True)),
    ],
)
def test_a_line_that_is_cut_is_told_of(pieces, cut):
    one = quota()
    for piece in pieces:
        one.text("stdout", piece)
    end = one.end_of_text("stdout", lambda text: text)
    assert end.left_out
    assert (end.cut_before, end.cut_behind) == cut


# --- displays ---------------------------------------------------------------------------------


def test_a_display_is_shown_whole_or_not_at_all_and_a_large_one_may_take_the_tails_share():
    one = quota()
    assert one.fits(CAP - ROOM - 500)
    assert not one.fits(501)
    assert one.fits(ROOM + 1)
    assert not one.fits(ROOM + 1)
    assert quota().fits(CAP)
    assert not quota().fits(CAP + 1)


def held(tail):
    return [(h.message, h.update) for h in tail.take()]


def test_the_last_displays_are_held_in_their_order():
    tail = DisplayTail(1_000)
    for number in range(100):
        tail.add(b"%d" % number, None, update=False)
    assert tail.dropped == 95 * 200
    assert held(tail) == [(b"%d" % number, False) for number in range(95, 100)]


def test_an_update_takes_the_place_of_the_one_before_and_leaves_nothing_out():
    tail = DisplayTail(1_000)
    for number in range(100_000):
        tail.add(b"%d" % number, "bar", update=True)
    assert tail.dropped == 0
    assert held(tail) == [(b"99999", True)]


def test_an_update_of_what_is_held_shows_it_for_the_first_time():
    tail = DisplayTail(1_000)
    tail.add(b"first", "bar", update=False)
    tail.add(b"other", None, update=False)
    tail.add(b"last", "bar", update=True)
    assert held(tail) == [(b"other", False), (b"last", False)]


def test_an_update_of_what_was_left_out_shows_it_after_all():
    tail = DisplayTail(1_000)
    tail.add(b"first", "bar", update=False)
    for _ in range(5):
        tail.add(b"other", None, update=False)
    tail.add(b"last", "bar", update=True)
    assert held(tail)[-1] == (b"last", False)
    tail.add(b"x" * 2_000, "large", update=False)
    tail.add(b"small", "large", update=True)
    assert held(tail) == [(b"small", False)]


def test_ids_that_were_left_out_are_not_remembered_without_end():
    tail = DisplayTail(1_000)
    for number in range(10_000):
        tail.add(b"", f"id {number}", update=False)
    assert len(tail._lost) <= 1_000


# --- clear_output -----------------------------------------------------------------------------


def test_a_clear_empties_the_tail_at_once_or_with_what_comes_next():
    for wait, between, after in ((False, "", "new\n"), (True, "old\n", "new\n")):
        one = quota()
        one.text("stdout", "x" * (CAP - ROOM))
        one.text("stdout", "old\n")
        one.clear(0, wait=wait)
        assert one.end_of_text("stdout", lambda text: text).text == between
        one.text("stdout", "new\n")
        assert one.end_of_text("stdout", lambda text: text).text == after


def test_a_clear_for_which_there_is_no_room_is_owed_from_the_next_output_on():
    one = quota()
    assert one.fits(CAP)
    assert not one.clear(0, wait=True)
    assert not one.clear_owed
    assert not one.text("stdout", "a\n")
    assert one.clear_owed
    assert not one.clear(0, wait=True)
    assert not one.text("stdout", "b\n")
    assert one.end_of_text("stdout", lambda text: text) == EndOfText("b\n", 2)
    assert one.displays_left_out() == 0


def test_where_a_stream_has_no_cap_a_clear_without_room_is_left_out():
    one = quota(stdout=None)
    assert one.fits(CAP)
    assert not one.clear(0, wait=False)
    assert one.text("stdout", "shown") == "shown"
    assert not one.clear_owed
    assert one.displays_left_out() == 200
