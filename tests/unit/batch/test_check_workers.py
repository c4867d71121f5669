"""One file can't hang, kill or starve a run: its verdict says so, and the others are judged."""

import sys
import time
from pathlib import Path

import pytest

from cellblock.batch import check as module
from cellblock.batch.check import CheckWorkers, WorkItem
from cellblock.batch.files import File
from cellblock.batch.verdict import CheckOptions, FileKind, JudgeLimits
from cellblock.errors import CheckError
from cellblock.policy.load import load_for_check
from support.notebooks import notebook

SAFE = load_for_check("safe")
HONEST = {"clean": b"x = 1", "bad": b"import gc"}
#: Half a minute of work for IPython's transformer, which has a third of a second for each cell.
SLOW = notebook(*["%precision 3\n" * 400 + f"# {n}" for n in range(600)]).encode()
#: Some hundreds of megabytes, as Python has it.
LARGE = b'{"nbformat": 4, "cells": [' + b"[]," * 3_000_000 + b"[]]}"


def judged(files, jobs=2, **limits):
    """Return what was said of each file, by name."""
    workers = CheckWorkers(CheckOptions.of(SAFE, limits=JudgeLimits(**limits)), jobs)
    try:
        given = (WorkItem(file(name), content) for name, content in files.items())
        verdicts = {item.file.shown: v for item, v in workers.judge(given)}
    finally:
        workers.close()
    return {
        name: [(found.finding.rule, found.finding.why) for found in verdict.findings]
        for name, verdict in verdicts.items()
    }


def file(name):
    kind = FileKind.notebook if name.endswith(".ipynb") else FileKind.script
    return File(Path(name), name, kind, Path())


def test_every_file_gets_its_verdict():
    expected = {f"{n}.py": n % 3 for n in range(50)}
    found = judged({name: b"import gc\n" * many for name, many in expected.items()})
    assert {name: len(said) for name, said in found.items()} == expected


@pytest.mark.parametrize(
    ("name", "content", "limits", "why"),
    [
        ("cpu.ipynb", SLOW, {"cpu_seconds": 1}, "took more than 1 s of processor time"),
        ("time.ipynb", SLOW, {"seconds": 0.3}, "took longer than 0.3 s"),
        ("size.ipynb", LARGE, {"memory": 128 << 20}, "takes more than 128 MiB of memory to read"),
    ],
)
def test_a_file_that_takes_too_much_costs_its_own_verdict(name, content, limits, why):
    files = {"a.py": HONEST["bad"], name: content, "b.py": HONEST["bad"], "c.py": HONEST["clean"]}
    found = judged(files, jobs=1, **limits)
    assert found.pop(name) == [("file-not-checked", why)]
    assert {name: len(said) for name, said in found.items()} == {"a.py": 1, "b.py": 1, "c.py": 0}


def test_a_process_that_dies_is_replaced(monkeypatch):
    died, give = [], module._Worker.give

    def give_and_kill(worker, item):
        give(worker, item)
        if item.file.shown == "x.ipynb":
            died.append(worker._process.pid)
            worker._process.kill()

    monkeypatch.setattr(module._Worker, "give", give_and_kill)
    found = judged({"x.ipynb": SLOW, "a.py": HONEST["bad"]}, jobs=1)
    assert len(died) == 1
    assert found["x.ipynb"] == [("file-not-checked", "ended the process that read it (SIGKILL)")]
    assert len(found["a.py"]) == 1


BOMBS = {
    "brackets.py": b"(" * 100_000,
    "unary.py": b"-" * 100_000 + b"1",
    "not.py": b"not " * 100_000 + b"x",
    "calls.py": b"f" + b"()" * 30_000,
    "dots.py": b"a" + b".a" * 100_000,
    "lambdas.py": b"lambda:" * 50_000 + b"1",
    "ifs.py": b"".join(b" " * n + b"if x:\n" for n in range(120)),
    "sums.py": b"1+" * 50_000 + b"1",
    "powers.py": b"1**" * 100_000 + b"1",
    "digits.py": b"9" * 100_000,
    "braces.py": b"{" * 1_000 + b"}" * 1_000,
    "quotes.py": b"'''" * 100_001,
    "words.py": b"a " * 400_001,
    "letters.py": b"a" * 8_000_000,
    "nulls.py": b"\0" * 1_000,
    "f-string.py": b"f'" + b'{f"' * 100 + b"'",
    "continued.py": b"\\\n" * 100_000,
    "magics.ipynb": notebook("%%time\n" * 200 + "x").encode(),
    "questions.ipynb": notebook("?" * 100_000, "x?\n" * 2_000).encode(),
    "shells.ipynb": notebook("!x\n" * 5_000).encode(),
    "lists.ipynb": b"[" * 1_000_000,
    "objects.ipynb": b'{"a":' * 100_000,
    "number.ipynb": b'{"nbformat": ' + b"9" * 1_000_000 + b"}",
    "cells.ipynb": notebook(*["x"] * 2_000).encode(),
    "escapes.ipynb": b'"' + b"\\u0041" * 1_000_000,
}


def test_no_bomb_of_a_parsers_ends_a_run():
    found = judged({**BOMBS, "a.py": HONEST["bad"]})
    assert set(found) == {*BOMBS, "a.py"}
    assert [rule for rule, _ in found["a.py"]] == ["import-not-allowed"]
    assert found["cells.ipynb"] == []
    for name in ("brackets.py", "braces.py", "nulls.py", "words.py", "lists.ipynb", "number.ipynb"):
        assert found[name], name


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("/bin/false", "the process that checks did not start: ended the process that read it"),
        ("/nowhere/python", "no process to check in: No such file or directory"),
    ],
)
def test_where_no_process_starts_that_is_said_at_once(monkeypatch, program, said):
    monkeypatch.setattr(sys, "executable", program)
    began = time.monotonic()
    with pytest.raises(CheckError) as failed:
        judged({"a.py": b""})
    assert str(failed.value).startswith(said)
    assert time.monotonic() - began < 30


def test_without_files_there_are_no_processes(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert judged({}) == {}
