"""What whoever approves is shown, and what becomes of it."""

import pytest

from cellblock.errors import AdmissionError
from cellblock.host.consent import review

CELLS = {1: "x = 1"}


def reviewed(desk, name="a.ipynb", cells=None):
    return review.review(desk.place, desk.policy, name, cells or CELLS)


def names(desk):
    return [one.subject for one in desk.place.read().records]


def test_what_others_approve_while_somebody_is_asked_is_neither_lost_nor_written_over(desk):
    asked = reviewed(desk)
    desk.approve("y = 2", name="b.ipynb")
    review.approve(desk.place, desk.policy, asked)
    assert names(desk) == ["b.ipynb", "a.ipynb"]
    asked = reviewed(desk, cells={1: "z = 3"})
    desk.approve("y = 2")
    with pytest.raises(AdmissionError, match="was changed while you were asked"):
        review.approve(desk.place, desk.policy, asked)
    assert [cell.source for cell in desk.place.read().notebook("a.ipynb").cells] == ["y = 2"]


def test_what_breaks_while_somebody_is_asked_is_not_written_over(desk):
    desk.approve("y = 2", name="b.ipynb")
    asked = reviewed(desk)
    desk.place.file.write_bytes(b"{}")
    with pytest.raises(AdmissionError, match="not a signed manifest"):
        review.approve(desk.place, desk.policy, asked)
    asked = reviewed(desk)
    assert "it is not a signed manifest" in asked.why_unusable
    review.approve(desk.place, desk.policy, asked)
    assert names(desk) == ["a.ipynb"]


# --- what is pointed out ----------------------------------------------------------------------

PAY = "\u0440\u0430yload"  # begins with two Cyrillic letters


@pytest.mark.parametrize(
    "cell",
    [
        "{} = 2",
        "print(f'{{{}}}')",
        "print(f'{{x:{{{}}}}}')",
        "%%time\n{} = 3",
        "%%capture out\n{}()",
        "%%bash\n{}",
        "x = 1\n%timeit {}",
        "%timeit x + \\\n  {}",
        "!echo {{{}}}",
        "files = !ls {}",
        "{}?",
        "# get_ipython().run_line_magic('time', '{0}')\n%time {0}",
        "'''\n%time {0}\n'''\n%time {0}",
        "x = 'a\\\n b'\n{}",
        "x = (\n{}",
        "x.{}",
        "# x\r{} = 1",
    ],
)
def test_letters_that_are_not_ascii_are_pointed_out_wherever_they_may_be_code(cell):
    assert list(review.letters(cell.format(PAY))) == [f"{PAY} (U+0440 CYRILLIC SMALL LETTER ER)"]


@pytest.mark.parametrize(
    "cell", ["x = '{}'", "x = 1  # {}", "x = rb'' or R'''\n{}'''", "%time\n# {}"]
)
def test_letters_of_comments_and_plain_text_are_not(cell):
    assert list(review.letters(cell.format(PAY))) == []
