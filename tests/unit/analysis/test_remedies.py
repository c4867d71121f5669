"""A refusal names the operation that does the job, and shows how; the rewrite is a cell that runs."""

import dataclasses
import itertools
import re

import pytest

from cellblock.analysis import Rules
from cellblock.analysis.allowlist import SCIENCE
from cellblock.analysis.findings import REPLACED_MODULES
from cellblock.analysis.imports import _WHY, NEVER
from cellblock.analysis.magic_table import MAGICS
from cellblock.policy.load import load, preset_policy
from unit.analysis.rules_for_tests import DATA, SAFE, findings


def read(path="data/a.csv"):
    return f'text = ops.read_file("{path}")\nlines = text.splitlines()'


def listed(folder="data"):
    return f'for entry in ops.list_dir("{folder}"):\n    print(entry["name"])'


def asked(url="https://api.example.org/items"):
    return f'response = ops.http("{url}")\nitems = response.json()'


ANSWER = 'answer = llm("…")\nprint(answer)'
TABULATE = 'ops.install("tabulate")\nimport tabulate'
CASES = [
    ("import requests", asked()),
    ("from urllib import request", asked()),
    ("import urllib.request", asked()),
    ("import openai", ANSWER),
    ("from anthropic import Anthropic", ANSWER),
    ("from google import genai", None),
    ("import google.genai as g", ANSWER),
    ("import litellm", ANSWER),
    ("import glob", listed()),
    ("from pathlib import Path", read()),
    ("from os import listdir", listed()),
    ("import os\nos.open('a', 0)", read()),
    ("open", read()),
    ("open('my.txt')", read("my.txt")),
    ("open(str(name), f(open('b.txt')))", read("b.txt")),
    (
        "open('p.png', mode='rb')",
        'import io\nfile = io.BytesIO(ops.read_file("p.png", binary=True))',
    ),
    ("open('o.txt', 'w')", 'text = "…"\nops.write_file("o.txt", text)'),
    (
        "open('log.txt', 'a')",
        'text = ops.read_file("log.txt") + "…"\nops.write_file("log.txt", text)',
    ),
    (
        "open('log.bin', 'ab+')",
        'data = ops.read_file("log.bin", binary=True) + b"..."\nops.write_file("log.bin", data)',
    ),
    ("open('o.txt', 'r+')", None),
    ("open('o.txt', 'rb+')", None),
    ("open('o.txt', 'w+')", None),
    ("open('o.txt', 'x')", None),
    ("open('o.txt', mode='x+')", None),
    ("open(file='a\"b.txt')", "text = ops.read_file('a\"b.txt')\nlines = text.splitlines()"),
    ("open('" + "x" * 99 + "')", read()),
    ("!cat notes.md", read("notes.md")),
    ("!head -n 5 notes.md", read()),
    ("!cat < a.txt", read()),
    ("!cat <a.txt", read()),
    ("!cat *.md", read()),
    ("!cat {name}", read()),
    ("!cat 'notes.md'", read()),
    ("!ls | wc -l", listed()),
    ("!ls work", listed("work")),
    ("!ls -la", listed()),
    ("%ls", listed()),
    ("!curl https://a.example/x", asked("https://a.example/x")),
    ("!curl https://a.example/x;ls", asked()),
    ("!curl httpbin.org/get", asked()),
    ("!pip install -q 'scikit-learn'", None),  # as that of scikit-learn below
    ("!pip install 'tabulate'", TABULATE),
    ('!pip install -U "tabulate>=0.9"', TABULATE),
    ("!pip install --index-url https://a.example/x tabulate", None),
    ("!pip install -r tabulate", None),
    ("!pip install tabulate.whl", None),
    ("!pip install tabulate+https://a.example", None),
    ("!pip install -q tabulate==1.0", TABULATE),
    ("!pip install -q scikit-learn==1.0", None),  # what it brings may not be imported
    ("%pip install tabulate", TABULATE),
    ("%%writefile out.py\nx = 1", 'text = "…"\nops.write_file("out.py", text)'),
    (
        "%%writefile -a out.py\nx = 1",
        'text = ops.read_file("out.py") + "…"\nops.write_file("out.py", text)',
    ),
    ("!rm -rf /", None),
    ("import socket", None),
    ("import subprocess", None),
    ("import http.server", None),
]


# What is installed is for cells that the operator lets import it.
GRANTED = dataclasses.replace(SAFE, raw_modules=frozenset({"tabulate"}))


def test_a_refusal_shows_what_does_the_job():
    for cell, rewrite in CASES:
        found = findings(cell, GRANTED)
        shown = [one.rewrite for one in found if one.rewrite]
        assert (rewrite in shown) if rewrite else not shown, (cell, rewrite)
        assert all(re.match(r"Ask the host, (ops\.|llm)", f.remedy) for f in found if f.rewrite), (
            cell,
            rewrite,
        )


def test_no_operation_is_named_for_what_is_no_file_and_one_for_a_quoted_name_of_a_package():
    (found,) = findings("from asyncio import Runner", GRANTED)
    assert (found.remedy, found.rewrite) == (
        'Use what dir(asyncio) lists, or put add.allowed_modules = ["asyncio"] in your policy file.',
        "",
    )

    (found,) = findings("!pip install 'scikit-learn'", GRANTED)
    assert (found.remedy, found.rewrite) == ("Ask the host, ops.install.", "")


OPERATIONS = sorted(GRANTED.operations)
SHUTIL = 'put add.allowed_modules = ["shutil"] in your policy file.'
PARTS = [set(chosen) for n in range(3) for chosen in itertools.combinations(OPERATIONS, n)]


def test_a_rewrite_is_shown_only_where_all_that_it_calls_is_granted():
    for granted in PARTS:
        rules = dataclasses.replace(GRANTED, operations=frozenset(granted))
        cells = [cell for cell, _ in CASES] + [f"import {name}" for name in REPLACED_MODULES]
        for one in (one for cell in cells for one in findings(cell, rules)):
            called = set(re.findall(r"\b(?:ops\.\w+|llm)(?=\()", one.rewrite))
            assert called <= granted, one
            assert one.rewrite == "" or all(name in one.remedy for name in called), granted
            assert [f.rule for f in findings(one.rewrite, rules)] == [], granted


@pytest.mark.parametrize(
    ("granted", "remedy", "rewrite"),
    [
        (
            {"ops.read_file"},
            f"Ask the host, ops.read_file, or {SHUTIL}",
            read(),
        ),
        (
            {"ops.list_dir"},
            f"Ask the host, ops.list_dir, or {SHUTIL}",
            listed(),
        ),
        (
            {"ops.read_file", "ops.list_dir"},
            f"Ask the host, ops.list_dir and ops.read_file, or {SHUTIL}",
            (
                'names = [entry["name"] for entry in ops.list_dir("data")]\n'
                'text = ops.read_file("data/a.csv")'
            ),
        ),
    ],
)
def test_where_a_part_is_granted_that_part_is_shown(granted, remedy, rewrite):
    (found,) = findings("import shutil", dataclasses.replace(SAFE, operations=frozenset(granted)))
    assert (found.remedy, found.rewrite) == (remedy, rewrite)


def _run(text):
    code = {"__builtins__": {"__import__": __import__, "print": len, "str": str}}
    made = type("ops", (), {})
    made.read_file = lambda _path, *, binary=False: b"x" if binary else "x"
    made.write_file = lambda _path, _data: 1
    made.list_dir = lambda _path: [{"name": "x"}]
    made.http = lambda _url: type("Response", (), {"json": lambda _self: []})()
    made.install = lambda _name: []
    exec(compile(text, "<rewrite>", "exec"), code | {"ops": made, "llm": str})


REWRITES = sorted({r for _, r in CASES if r} | {i.rewrite for i in REPLACED_MODULES.values()})


def test_a_rewrite_is_two_lines_that_the_rules_let_pass():
    for rewrite in REWRITES:
        assert rewrite.count("\n") == 1, rewrite
        assert [f.rule for f in findings(rewrite, GRANTED)] == [], rewrite
        if not rewrite.startswith("ops.install") and "zlib" not in rewrite:
            _run(rewrite)


def test_what_is_not_granted_is_named_and_not_shown():
    none = Rules(language=True, modules=SAFE.modules, raw_modules=frozenset(), magics=SAFE.magics)
    said = {
        cell: findings(cell, none)[0]
        for cell in ("import shutil", "open('a')", "!ls", "import ftplib")
    }
    assert [one.rewrite for one in said.values()] == [""] * 4
    assert {cell: one.remedy for cell, one in said.items()} == {
        "import shutil": (
            'Put ops.read_file.roots = ["{project}"] (then call ops.read_file) or '
            'add.allowed_modules = ["shutil"] in your policy file.'
        ),
        "open('a')": (
            'Take the data as an input of the cell, or put ops.read_file.roots = ["{project}"] '
            "(then call ops.read_file) in your policy file. If it is a name of your own, choose "
            "another."
        ),
        "!ls": (
            'Put ops.list_dir.roots = ["{project}"] (then call ops.list_dir) in your policy file.'
        ),
        "import ftplib": (
            'Put add.allowed_modules = ["ftplib"] and network_access = ["api.example.org:443"] '
            "in your policy file."
        ),
    }


WORK = dataclasses.replace(DATA, reads=True, writes="work")
READS = 'put ops.read_file.roots = ["{project}"] (then call ops.read_file) in your policy file.'
RENAME = " If it is a name of your own, choose another."


@pytest.mark.parametrize(
    ("cell", "rules", "remedy"),
    [
        (
            "open(path)",
            WORK,
            (f'Read tables with pandas, as pd.read_csv("data/a.csv"), or {READS}{RENAME}'),
        ),
        (
            "open('b.json')",
            dataclasses.replace(WORK, operations=frozenset({"ops.read_file"})),
            (
                "Ask the host, ops.read_file,"
                f' or read tables with pandas, as pd.read_json("b.json").{RENAME}'
            ),
        ),
        (
            "open('out.txt', 'w')",
            WORK,
            (
                'Write it with pandas, as df.to_csv("work/out.csv"),'
                ' or put ops.write_file.roots = ["{project}/work?"] (then call ops.write_file)'
                " in your policy file."
                f"{RENAME}"
            ),
        ),
        (
            "open('out.txt', 'w')",
            dataclasses.replace(WORK, writes=""),
            (
                'Put ops.write_file.roots = ["{project}/work?"] (then call ops.write_file)'
                f" in your policy file.{RENAME}"
            ),
        ),
        (
            "open('notes.md')",
            dataclasses.replace(WORK, reads=False),
            (f"Take the data as an input of the cell, or {READS}{RENAME}"),
        ),
    ],
)
def test_where_pandas_can_read_or_write_files_that_is_named(cell, rules, remedy):
    (found,) = findings(cell, rules)
    assert found.remedy == remedy


def test_rules_cross_the_wire_with_what_is_granted():
    assert Rules.from_builtins(SAFE.to_builtins()) == SAFE
    assert Rules.from_builtins(DATA.to_builtins()).operations == frozenset()
    assert Rules.from_builtins(WORK.to_builtins()) == WORK


REFUSED = [
    *(f"import {name}" for name in (*REPLACED_MODULES, *_WHY, *NEVER, *SCIENCE)),
    *(
        "import os.path.extra",
        "import xml.sax",
        "import sklearn.linear_model",
        "from ast import parse",
    ),
    *(
        "import beside_the_notebook",
        "import _thread",
        "from os import environ",
        "from io import open",
    ),
    *(f"%{name} x" for name in sorted({*MAGICS, "no_such_magic"})),
    *(
        "%%",
        "% x",
        "%%writefile a.txt\nx",
        "open('a')",
        "open('a', 'a')",
        "!ls",
        "!pip install tabulate",
    ),
]
#: What a remedy says to put in a policy file: all that stands before the file's name.
PUT = re.compile(r"\b[pP]ut (.+) in a policy file with (extends = \"safe\")")
FIELD = r"(?:(?:add\.|ops\.|llm)[\w.]*|network_access|subprocess_execution)"
LINE = re.compile(rf"(?:^| or | and )({FIELD} = (?:\[[^]]*\]|\{{[^}}]*\}}|true))")


@pytest.mark.parametrize("cell", sorted(set(REFUSED)))
def test_every_line_that_a_remedy_says_to_put_in_a_policy_is_taken_and_helps(cell, tmp_path):
    rules = preset_policy("safe").rules()
    for finding in findings(cell, rules):
        assert "operator" not in finding.remedy
        said = PUT.search(finding.remedy)
        assert ("extends" in finding.remedy) == bool(said)
        put = re.sub(r" \(then call [^)]*\)", "", said[1]) if said else ""
        lines = LINE.findall(put)
        assert "".join(lines) == re.sub(f" (or|and) (?={FIELD})", "", put)
        for line in lines:
            policy = tmp_path / "lab.toml"
            policy.write_text(f"{said[2]}\n{line}\n")
            (tmp_path / "project").mkdir(exist_ok=True)
            loaded = load(str(policy), project=tmp_path / "project", allow_unsafe=False)
            if line.startswith("add."):
                left = [f.rule for f in findings(cell, loaded.rules())]
                assert finding.rule not in left, (line, left)
            elif line.startswith(("ops", "llm")):
                assert len(loaded.rules().operations) == 1
