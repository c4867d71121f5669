"""What a user may approve of importing: a table, and those that are in none."""

import dataclasses
import sys

import pytest

from cellblock.analysis import Rules, analyse, transform
from cellblock.analysis.allowlist import MODULES
from cellblock.analysis.imports import (
    APPROVABLE,
    MAX_WANTED,
    NEVER,
    approvable,
    granting,
    imports_to_approve,
)

STRICT = Rules(
    language=True,
    modules=MODULES,
    raw_modules=frozenset(),
    magics=frozenset({"time"}),
    approvals=True,
)
#: As in preset data: packages are let in as they are.
OPEN = dataclasses.replace(STRICT, raw_modules=frozenset({"numpy"}))


def names(source, rules=STRICT):
    return [(one.kind, one.name) for one in imports_to_approve(analyse(source, rules), rules)]


def test_the_table_is_sorted_and_of_the_standard_library():
    modules = list(APPROVABLE)
    assert modules == sorted(modules)
    assert {name.partition(".")[0] for name in modules} <= sys.stdlib_module_names
    assert not set(modules) & set(MODULES)
    assert list(NEVER) == sorted(NEVER)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import bz2", [("module", "bz2")]),
        ("import bz2 as c, lzma", [("module", "bz2"), ("module", "lzma")]),
        ("from bz2 import open\nimport bz2", [("module", "bz2")]),
        ("from html.parser import HTMLParser", [("module", "html.parser")]),
        ("import html.parser as p", [("module", "html.parser")]),
        ("def f():\n    import tomllib", [("module", "tomllib")]),
        ("%%time\nimport bz2", [("module", "bz2")]),
    ],
)
def test_imports_that_are_all_that_is_wrong_can_be_approved(source, expected):
    text = transform(source).source
    assert names(text) == expected
    assert analyse(text, granting(STRICT, imports_to_approve(analyse(text, STRICT), STRICT))) == ()


@pytest.mark.parametrize(
    "source",
    [
        "import bz2, gc",
        "import bz2\nopen('x')",
        "import bz2\nx.__globals__",
        "from . import bz2",
        "import bz2\n!ls",
        "from json import tool",
        "\n".join(f"import p{n}" for n in range(30)),
    ],
)
def test_a_cell_with_anything_else_wrong_is_not_asked_about(source):
    for rules in [STRICT, OPEN]:
        assert names(transform(source).source, rules) == []


#: What lets text run, reads memory, starts processes, opens sockets, or hands out the interpreter.
DANGEROUS = """
    builtins code codecs codeop copyreg ctypes dis doctest email ensurepip faulthandler fcntl ftplib
    gc getpass glob http.client http.server imaplib importlib importlib.util inspect linecache
    marshal mmap multiprocessing netrc os os.path pathlib._local pdb pickle pkgutil platform posix
    posixpath profile pty pydoc resource runpy select selectors shelve shutil signal site smtplib
    socket socketserver sqlite3 ssl subprocess symtable sys sysconfig syslog tarfile tempfile test
    threading timeit trace tracemalloc turtle unittest urllib.request venv webbrowser xmlrpc.client
    zipimport zipapp _ctypes _io _posixsubprocess _thread nt
""".split()  # noqa: SIM905


def test_no_module_that_gives_the_layer_away_can_be_approved():
    for rules in [STRICT, OPEN]:
        for module in DANGEROUS:
            assert approvable(module, rules) == (), (module, rules)


UNAPPROVABLE = [*NEVER, "cellblock.guest.guards", "IPython.core", "_private"]


def test_some_packages_can_never_be_approved():
    for module in UNAPPROVABLE:
        assert approvable(module, OPEN) == (), module


def test_of_a_module_whose_names_are_all_allowed_private_ones_are_not():
    whole = dataclasses.replace(STRICT, modules={"random": None})
    assert analyse("from random import randint, __doc__", whole) == ()
    for source in (
        "from random import _os",
        "from random import __globals__",
        "import random\nrandom._os",
        "import random as r\nr._os",
    ):
        assert [one.rule for one in analyse(source, whole)] == ["module-name-not-allowed"], source


def test_nobody_is_asked_about_more_imports_than_are_read():
    many = dataclasses.replace(OPEN, raw_modules=frozenset({"numpy"}))
    for count, expected in [(MAX_WANTED, MAX_WANTED), (MAX_WANTED + 1, 0)]:
        assert len(names("\n".join(f"import p{n}" for n in range(count)), many)) == expected


def test_packages_can_be_approved_only_where_packages_are_let_in():
    source = "import requests.sessions\nfrom tabulate import tabulate"
    assert names(source) == []
    assert names(source, OPEN) == [("package", "requests"), ("package", "tabulate")]


def test_what_a_policy_allows_already_stays_as_it_is():
    more = STRICT.granting(["math", "io", "bz2"], [])
    assert more.modules["io"] == STRICT.modules["io"]
    assert more.modules["bz2"] is None
    assert STRICT.granting([], []) == STRICT


ASK = "Approve it where you can be asked."


@pytest.mark.parametrize(
    ("source", "rules", "remedy", "line"),
    [
        ("import tomllib", STRICT, ASK, 'add.allowed_modules = ["tomllib"]'),
        ("import numpy", STRICT, "", 'add.allowed_modules = ["@science"]'),
        ("import pytest_timeout", OPEN, ASK, 'add.allowed_modules = ["pytest_timeout"]'),
    ],
)
def test_a_denial_says_what_can_be_approved(source, rules, remedy, line):
    (finding,) = analyse(source, rules)
    assert (finding.remedy, finding.allows) == (remedy, (line,))


def test_a_denial_says_nothing_of_it_where_nobody_is_asked():
    (finding,) = analyse("import tomllib", dataclasses.replace(STRICT, approvals=False))
    assert (finding.remedy, finding.allows) == ("", ('add.allowed_modules = ["tomllib"]',))
