"""Models write code between fences, which are not Python."""

import pytest

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
    ["print(1)", "```bash\nls\n```", "Run this:\n```python\n1\n```", "s = '```'", "```python\n1"],
)
def test_any_other_text_stays_as_it_is(code):
    assert without_fence(code) == code
