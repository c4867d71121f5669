"""Models write code between fences, which are not Python."""

import time

import pytest

from cellblock.analysis.transform import CHARACTERS
from cellblock.api.fences import without_fence


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("```python\nprint(1)\n```", "print(1)"),
        ("\n```\nx = 1\ny = 2\n```\n", "x = 1\ny = 2"),
        ("~~~py\nprint('```')\n~~~", "print('```')"),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''"),
    ],
)
def test_a_block_of_python_is_its_code(written, code):
    assert without_fence(written) == code


@pytest.mark.parametrize(
    "code",
    [
        "print(1)",
        "```\n",
        "```",
        "```bash\nls\n```",
        "Run this:\n```python\n1\n```",
        "s = '```'",
        "```python\n1",
    ],
)
def test_any_other_text_stays_as_it_is(code):
    assert without_fence(code) == code


@pytest.mark.parametrize("text", ["```" + " " * 100_000, "`" * 100_000, "```\n" + "\n" * 100_000])
def test_no_text_of_a_model_holds_up_the_loop(text):
    began = time.process_time()
    assert without_fence(text) == text
    assert time.process_time() - began < 1


def test_what_is_longer_than_any_cell_is_left_to_be_refused():
    text = f"```\n{' ' * CHARACTERS}\n```"
    assert without_fence(text) == text
