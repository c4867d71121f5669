"""The examples in the documentation of the API run, and print what they say."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "api.md").read_text() + (DOCS / "receipts.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGES, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_prints_what_it_says(example, home, capsys):
    assert home
    said = [
        line.strip().removeprefix("# >").strip()
        for line in example.splitlines()
        if line.strip().startswith("# >")
    ]
    exec(compile(example, "docs/api.md", "exec"), {"__name__": "__main__"})
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert printed == said


def test_there_are_examples():
    assert len(EXAMPLES) >= 7
