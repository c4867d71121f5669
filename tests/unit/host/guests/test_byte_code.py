"""Byte code of what guests had to compile is kept by a process of the host's."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from cellblock.host.guests import byte_code
from cellblock.host.guests.byte_code import ByteCode, keep
from support.idle import IdleReactor


def compiled(file):
    return Path(importlib.util.cache_from_source(str(file)))


@pytest.fixture
def packages(tmp_path):
    folder = tmp_path / "site-packages"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "mod.py").write_text("raise SystemExit('it was run')\n")
    return folder


def test_byte_code_is_kept_as_an_import_would(packages, monkeypatch):
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    module = packages / "pkg" / "mod.py"
    keep([str(module)], [str(packages)])
    assert compiled(module).read_bytes()[:4] == importlib.util.MAGIC_NUMBER
    module.write_text("another = 1\n")
    os.utime(module, (1, 1))
    before = compiled(module).read_bytes()
    keep([str(module)], [str(packages)])
    assert compiled(module).read_bytes() != before


def test_nothing_but_sources_of_packages_is_looked_at(packages, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    outside = tmp_path / "notebooks" / "mod.py"
    outside.parent.mkdir()
    outside.write_text("x = 1\n")
    (packages / "linked").symlink_to(outside.parent)
    (packages / "broken.py").write_text("(\n")
    (packages / "data.txt").write_text("x = 1\n")
    names = [
        outside,
        packages / "linked" / "mod.py",
        f"{packages}/pkg/../../notebooks/mod.py",
        packages / "broken.py",
        packages / "data.txt",
        packages / "missing.py",
        "mod.py",
        "",
    ]
    keep(map(str, names), [str(packages)])
    assert not [*tmp_path.rglob("__pycache__")]


@pytest.mark.parametrize("none_wanted", [False, True])
def test_a_process_of_the_hosts_keeps_it(packages, tmp_path, monkeypatch, none_wanted):
    own = Path(byte_code.__file__).parents[2] / "guest" / "installed.py"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(packages)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    if none_wanted:
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    compiled(own).unlink(missing_ok=True)
    module, reactor = packages / "pkg" / "mod.py", IdleReactor()
    ByteCode(reactor).keep_later([str(module), str(own)])
    reactor.wait()
    assert compiled(own).exists()
    assert compiled(module).exists() is not none_wanted


def test_one_process_at_a_time_however_often_something_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    reactor = IdleReactor()
    keeper = ByteCode(reactor)
    monkeypatch.setattr("cellblock.host.guests.byte_code.MOST", 3)
    keeper.keep_later(["/a.py"])
    keeper.keep_later(["/b.py", "/a.py"])
    keeper.keep_later(["/c.py"])
    reactor.wait()  # for the first: that is all that is watched
    reactor.wait()
    keeper.keep_later(["/d.py"])  # so many are looked at, and no more
    assert not reactor.watched
