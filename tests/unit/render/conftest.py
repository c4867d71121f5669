"""Values of the kinds that cards are made of."""

from dataclasses import replace
from functools import partial

import pytest

from cellblock.analysis import Finding

OS = Finding(
    rule="import-not-allowed",
    line=1,
    column=7,
    end_column=9,
    excerpt="import os, json",
    subject="os",
    why="reads and changes files, processes and the environment",
    remedy='Ask the host, ops.read_file("data/a.csv").',
    allows=('add.allowed_modules = ["os"]',),
)
OPEN = Finding(
    rule="builtin-not-allowed",
    line=4,
    column=7,
    end_column=11,
    excerpt='rows = open("data/a.csv").readlines()',
    subject="open",
    why="opens files",
    remedy="",
)


@pytest.fixture
def finding():
    """Return a function that makes an import finding, with what it is given changed."""
    return partial(replace, OS)


@pytest.fixture
def two_findings():
    return (OS, OPEN)
