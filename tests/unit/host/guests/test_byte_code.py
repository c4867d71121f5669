"""Byte code of what guests had to compile is kept by a process of the host's."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from cellblock.host.guests import byte_code
from cellblock.host.guests.byte_code import ByteCode, keep
from support.idle_reactor import IdleReactor


def compiled(file):
    return Path(importlib.util.cache_from_source(str(file)))


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Return a folder that is imported from, with a module."""
    folder = tmp_path / "site-packages"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "mod.py").write_text("raise SystemExit('it was run')\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    return folder


def test_byte_code_is_kept_as_an_import_would(packages):
    module = packages / "pkg" / "mod.py"
    keep([str(module)])
    assert compiled(module).read_bytes()[:4] == importlib.util.MAGIC_NUMBER
    module.write_text("another = 1\n")
    os.utime(module, (1, 1))
    before = compiled(module).read_bytes()
    keep([str(module)])
    assert compiled(module).read_bytes() != before


def test_nothing_is_looked_at_but_by_the_name_that_it_is_imported_from(packages, tmp_path):
    """A link that a cell has made may lead elsewhere by the time that the file is read."""
    project = tmp_path / "project"
    (project / "pkg").mkdir(parents=True)
    (project / "mod.py").write_text("x = 1\n")
    (project / "link").symlink_to(packages / "pkg")
    (packages / "link").symlink_to(project)
    (packages / "file.py").symlink_to(project / "mod.py")
    (packages / "own").mkdir()
    (packages / "own" / "mod.py").write_text("x = 1\n")
    (packages / "own" / "__pycache__").symlink_to(project / "pkg")
    (packages / "broken.py").write_text("(\n")
    (packages / "data.txt").write_text("x = 1\n")
    names = [
        project / "mod.py",
        project / "link" / "mod.py",
        f"{project}/../site-packages/pkg/mod.py",
        packages / "link" / "mod.py",
        packages / "file.py",
        packages / "own" / "mod.py",
        f"{packages}/pkg/../../project/mod.py",
        f"{packages}/./pkg/mod.py",
        f"{packages}//pkg/mod.py",
        packages / "broken.py",
        packages / "data.txt",
        packages / "missing.py",
        f"{packages}/\0.py",
        "mod.py",
        "",
    ]
    keep(map(str, names))
    assert [path for path in tmp_path.rglob("*") if path.suffix == ".pyc"] == []


@pytest.mark.parametrize("none_wanted", [False, True])
def test_a_process_of_the_hosts_keeps_it(packages, tmp_path, monkeypatch, none_wanted):
    own = Path(byte_code.__file__).parents[2] / "guest" / "installed.py"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    if none_wanted:
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    compiled(own).unlink(missing_ok=True)
    module, reactor = packages / "pkg" / "mod.py", IdleReactor()
    ByteCode(reactor).keep_later([str(module), str(own)])
    reactor.wait()
    assert compiled(own).exists()
    assert compiled(module).exists() is not none_wanted


def test_one_process_at_a_time_however_often_something_is_told(packages, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    reactor = IdleReactor()
    keeper = ByteCode(reactor)
    monkeypatch.setattr("cellblock.host.guests.byte_code.MOST_NAMES", 3)
    keeper.keep_later([f"{packages}/a.py", "/elsewhere.py"])
    keeper.keep_later([f"{packages}/b.py", f"{packages}/a.py"])
    keeper.keep_later([f"{packages}/\N{GREEK SMALL LETTER ALPHA}.py"])
    reactor.wait()  # for the first: that is all that is watched
    reactor.wait()
    keeper.keep_later(["/elsewhere.py"])
    keeper.keep_later([f"{packages}/d.py"])  # so many are looked at, and no more
    assert not reactor.watched
