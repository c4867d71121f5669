"""Which searches and lookups a guest tells of: those that cells make, each once."""

import contextlib
import pathlib
import sys

import pytest

from cellblock.guest import not_there
from cellblock.guest.audit_hook import roots


@pytest.mark.parametrize(
    ("event", "args", "folder"),
    [
        ("glob.glob/2", ("/a/b/*.csv", False, None, None), "/a/b"),
        ("glob.glob/2", ("*.csv", False, "/a/c", None), "/a/c"),
        ("glob.glob/2", ("*.csv", False, None, 7), ""),
        ("glob.glob/2", ("/a/b*/c/*.csv", True, None, None), "/a"),
        ("glob.glob/2", ("/*", True, None, None), "/"),
        ("glob.glob/2", (b"/a/b/x.csv", False, None, None), "/a/b/x.csv"),
        ("os.listdir", ("/a/b[1]",), "/a/b[1]"),
        ("os.scandir", (7,), ""),
        ("os.walk", ("/a/b[1]", True, None, False), "/a/b[1]"),
        ("pathlib.Path.glob", ("/a", "b/*.csv"), "/a/b"),
        ("pathlib.Path.rglob", ("/a", "*.csv"), "/a"),
        ("glob.glob/2", (None, False, None, None), ""),
    ],
)
def test_a_search_begins_in_the_folder_before_the_first_wildcard(event, args, folder):
    assert not_there._searched(event, args) == folder


def test_a_relative_search_begins_where_the_process_is():
    assert not_there._searched("glob.glob/2", ("../data/*", False, None, None)) == str(
        pathlib.Path("../data").resolve()
    )


SEARCH = "def search(on_search, place): on_search('os.walk', (place, True, None, False))"


def searcher(file):
    """Return a function that searches, as code of ``file``."""
    names = {}
    exec(compile(SEARCH, file, "exec"), names)
    return names["search"]


def test_a_librarys_search_below_an_import_folder_is_not_told(monkeypatch, tmp_path):
    told = []
    on_search = not_there._searches(told.append)
    sources = str(tmp_path / "editable")
    monkeypatch.setattr("sys.path", [*sys.path, "", sources])
    library, cell = searcher(f"{roots()[0]}cython.py"), searcher("cell")
    for place in (sources, f"{sources}/libc/math", f"{sources}-data"):
        library(on_search, place)
    assert [one.name for one in told] == [f"{sources}-data"]
    cell(on_search, sources)
    assert [one.name for one in told[1:]] == [sources]


class Environment(dict):
    """As ``os.environ`` looks names up."""

    encodekey = staticmethod(str)

    def __getitem__(self, key):
        return super().__getitem__(self.encodekey(key))


def test_a_lookup_in_vain_is_told_once_and_setting_is_none():
    told = []
    environ = Environment(known="1")
    environ.encodekey = not_there._lookups(told.append, str, environ)
    for name in ("known", "a", "a", "b"):
        with contextlib.suppress(KeyError):
            environ[name]
    assert environ.encodekey("c") == "c"
    assert [(one.kind, one.name, one.direct) for one in told] == [
        ("variable", "a", True),
        ("variable", "b", True),
    ]
