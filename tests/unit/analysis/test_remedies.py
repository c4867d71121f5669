"""A refusal names the operation that does the job, and shows how; the rewrite is a cell that runs."""

import dataclasses
import itertools
import re
import time

import pytest

from cellblock.analysis import Rules
from cellblock.analysis.allowlist import SCIENCE
from cellblock.analysis.findings import (
    REPLACED_MODULES,
    add_command,
    allow_addresses,
    named_urls,
)
from cellblock.analysis.imports import _WHY, NEVER
from cellblock.analysis.magic_table import MAGICS
from cellblock.policy.edit import add_lines
from cellblock.policy.load import load, preset_policy
from cellblock.render.allowing import allowing
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
    assert (found.remedy, found.allows, found.rewrite) == (
        "",
        ('add.allowed_modules = ["asyncio"]',),
        "",
    )

    (found,) = findings("!pip install 'scikit-learn'", GRANTED)
    assert (found.remedy, found.rewrite) == ("Ask the host, ops.install.", "")


OPERATIONS = sorted(GRANTED.operations)
SHUTIL = 'add.allowed_modules = ["shutil"]'
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
            "Ask the host, ops.read_file.",
            read(),
        ),
        (
            {"ops.list_dir"},
            "Ask the host, ops.list_dir.",
            listed(),
        ),
        (
            {"ops.read_file", "ops.list_dir"},
            "Ask the host, ops.list_dir and ops.read_file.",
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
    assert found.allows == (SHUTIL,)  # the operations do a part of what the module does


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


RENAME = " If it is a name of your own, choose another."
READS = 'ops.read_file.roots = ["{project}"]'
WRITES = 'ops.write_file.roots = ["{project}/work"]'
INPUT = "Take the data as an input of the cell, or call"


@pytest.mark.parametrize(
    ("cell", "remedy", "allows"),
    [
        ("import shutil", "", [SHUTIL]),
        ("open('a')", f'{INPUT} ops.read_file("a") once it is allowed.{RENAME}', [READS]),
        (
            "open('/data/a.csv')",
            f'{INPUT} ops.read_file("/data/a.csv") once it is allowed.{RENAME}',
            ['ops.read_file.roots = ["/data/a.csv?"]'],
        ),
        (
            "open('/data/{x}')",
            f'{INPUT} ops.read_file("/data/{{x}}") once it is allowed.{RENAME}',
            [READS],
        ),
        (
            "open('../o.txt', 'w')",
            (
                'Call ops.write_file("work/o.txt", text) once it is allowed and the folder work is '
                f"there.{RENAME}"
            ),
            [WRITES],
        ),
        (
            "open('o.txt', 'w')",
            (
                'Call ops.write_file("work/o.txt", text) once it is allowed and the folder work is '
                f"there.{RENAME}"
            ),
            [WRITES],
        ),
        (
            "open('results/o.txt', 'x')",
            (f"Call ops.write_file once it is allowed and the folder results is there.{RENAME}"),
            ['ops.write_file.roots = ["{project}/results"]'],
        ),
        (
            "open('log.txt', 'a')",
            (
                'Call ops.read_file("work/log.txt") and ops.write_file("work/log.txt", text) once '
                f"it is allowed and the folder work is there.{RENAME}"
            ),
            [READS, WRITES],
        ),
        (
            "!ls",
            'Call ops.list_dir("data") once it is allowed.',
            ['ops.list_dir.roots = ["{project}"]'],
        ),
        (
            "!pip install tabulate",
            'Call ops.install("tabulate") once it is allowed.',
            [
                'ops.install.index = "https://pypi.org/simple"',
                'ops.install.allow = ["tabulate"]',
                'add.allowed_modules = ["tabulate"]',
            ],
        ),
        (
            "import openai",
            'Call llm("…") once it is allowed.',
            ['llm.base_url = "https://api.openai.com/v1"', 'llm.models = ["gpt-4.1-mini"]'],
        ),
        (
            "import ftplib",
            "",
            ['add.allowed_modules = ["ftplib"]', 'network_access = ["api.example.org:443"]'],
        ),
        ("!rm x", "Do it in Python, or ask the host for an operation.", []),
        ("%env", "Write it in Python.", ['add.magics = ["env"]']),
    ],
)
def test_what_is_not_granted_is_named_and_not_shown(cell, remedy, allows):
    none = Rules(language=True, modules=SAFE.modules, raw_modules=frozenset(), magics=SAFE.magics)
    (found,) = findings(cell, none)
    assert (found.remedy, list(found.allows), found.rewrite) == (remedy, allows, "")


@pytest.mark.parametrize(
    ("cell", "lines"),
    [
        (
            "import requests\nrequests.get('https://A.example/x?y=1')",
            ['ops.http.hosts = ["a.example"]'],
        ),
        (
            "import httpx\nbase = 'http://b.example:8080/api'\nx = f'https://c.example/{base}'",
            ['ops.http.hosts = ["http://b.example:8080", "c.example"]'],
        ),
        (
            "import requests\nrequests.get('http://localhost:8000/')",
            ['ops.http.hosts = ["http://localhost:8000"]', "ops.http.allow_private = true"],
        ),
        ("!curl https://a.example/x", ['ops.http.hosts = ["a.example"]']),
        (
            "import requests\nx = 'https://a..b/', 'https://1.2.3/', 'https://a.example:99999/'",
            ['ops.http.hosts = ["api.example.org"]'],
        ),
        (
            "import socket\nf('123', 4)\nf('x', 4)\nf('300.1.1.1', 5)\nf('10.0.0.1', 5432)",
            ['add.allowed_modules = ["socket"]', 'network_access = ["10.0.0.1:5432"]'],
        ),
        ("import requests", ['ops.http.hosts = ["api.example.org"]']),
        (
            "import smtplib\nsmtplib.SMTP('mail.example', 587)\nx = 'https://a.example/'",
            ['add.allowed_modules = ["smtplib"]', 'network_access = ["mail.example:587"]'],
        ),
        (
            "import socket\nx = 'https://a.example/'",
            ['add.allowed_modules = ["socket"]', 'network_access = ["a.example:443"]'],
        ),
    ],
)
def test_a_host_that_the_cell_names_is_the_one_that_is_allowed(cell, lines):
    rules = preset_policy("safe").rules()
    (found,) = [one for one in findings(cell, rules) if one.rule != "name-not-allowed"]
    assert list(found.allows) == lines


def test_an_address_is_found_in_time_that_grows_with_the_text():
    for text in ("https://" * 50_000, "('a" * 100_000, "https://" + "a." * 200_000):
        started = time.process_time()
        assert named_urls(text) == ()
        allow_addresses(text)
        assert time.process_time() - started < 2


WORK = dataclasses.replace(DATA, reads=True, writes="work")


@pytest.mark.parametrize(
    ("cell", "rules", "remedy"),
    [
        (
            "open(path)",
            WORK,
            (
                'Read tables with pandas, as pd.read_csv("data/a.csv"), or call '
                f'ops.read_file("data/a.csv") once it is allowed.{RENAME}'
            ),
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
                'Write it with pandas, as df.to_csv("work/out.csv"), or call '
                'ops.write_file("work/out.txt", text) once it is allowed and the folder work is '
                f"there.{RENAME}"
            ),
        ),
        (
            "open('notes.md')",
            dataclasses.replace(WORK, reads=False),
            f'{INPUT} ops.read_file("notes.md") once it is allowed.{RENAME}',
        ),
    ],
)
def test_where_pandas_can_read_or_write_files_that_is_named(cell, rules, remedy):
    (found,) = findings(cell, rules)
    assert found.remedy == remedy


@pytest.mark.parametrize(
    ("cell", "remedy"),
    [
        ("__builtins__", "Call the builtin by its name, as in len(x)."),
        ("__builtins__ = 1", "Choose another name."),
        (
            "%debug",
            "Run %xmode Verbose, then the cell again: its traceback has the arguments of each call.",
        ),
        (
            "import os\nos.getcwd()",
            "Name files from the notebook's folder: cells of mode safe begin in a scratch folder.",
        ),
        ("import os\nos.environ", 'Take the value as an input, inputs["NAME"].'),
        ("import os\nos.linsep", "Use os.linesep."),
        ("import os\nos.kill", ""),
        (
            "import my_module",
            (
                "my_module is not installed here. If it is a file beside the notebook, choose the "
                "kernel cellblock (data), which imports it."
            ),
        ),
        ("import numpy", "Choose the kernel cellblock (data), which has it."),
    ],
)
def test_what_to_do_instead_can_be_done(cell, remedy):
    (found,) = findings(cell, preset_policy("safe").rules())
    assert found.remedy == remedy


@pytest.mark.parametrize(
    ("file", "extends", "command"),
    [
        ("", "safe", "cellblock policy add cells.toml 'a = [\"b\"]' 'c = 1'"),
        ("", "data", "cellblock policy add cells.toml --extends data 'a = [\"b\"]' 'c = 1'"),
        ("/my lab/x.toml", "", "cellblock policy add '/my lab/x.toml' 'a = [\"b\"]' 'c = 1'"),
        ("", "", "cellblock policy add FILE 'a = [\"b\"]' 'c = 1'"),
    ],
)
def test_a_command_has_each_line_as_an_argument(file, extends, command):
    assert add_command(['a = ["b"]', "c = 1"], file, extends) == command


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
REFUSED += [
    "import requests\nrequests.post('https://a.example:8443/x')",
    "import smtplib\nsmtplib.SMTP('mail.example', 587)",
    "!curl http://127.0.0.1:8000/x",
    "open('results/o.txt', 'w')",
    "open('o.txt', 'r+')",
    "open('/etc/hostname')",
    "!ls /etc",
    "%%writefile -a results/log.txt\nx",
    "import os\nos.getcwd()",
    "import os\nos.path.exists('a')",
]


@pytest.mark.parametrize("cell", sorted(set(REFUSED)))
def test_each_block_is_taken_by_a_policy_and_nothing_asks_for_it_again(cell, tmp_path):
    """A block that grants an operation leads to a rewrite that passes, any other to the cell."""
    project = tmp_path / "project"
    for folder in ("work", "results"):
        (project / folder).mkdir(parents=True)
    for finding in findings(cell, preset_policy("safe").rules()):
        assert not re.search(r"policy file|operator|add\.| = ", finding.remedy)
        if not finding.allows:
            continue
        policy = tmp_path / "cells.toml"
        policy.write_text("\n".join(allowing(finding.allows, "safe").block))
        pasted = load(str(policy), project=project, allow_unsafe=False)
        policy.unlink()
        text = "\n".join(allowing(finding.allows, "safe").block)
        _, added = add_lines(str(policy), text, extends="safe", project=project)
        assert added == pasted

        rules = pasted.rules(str(policy))
        left = [one for one in findings(cell, rules) if one.rule == finding.rule]
        left = [one for one in left if one.subject == finding.subject]
        assert not [one for one in left if set(one.allows) & set(finding.allows)]
        for one in left:
            assert one.remedy.startswith("Ask the host, "), one
            assert findings(one.rewrite, rules) == ()
