"""Vega is bundled by a process of the host's, once, and nobody waits for it."""

from __future__ import annotations

import select
import time
from types import SimpleNamespace

import pytest

from cellblock.host.guests import background
from cellblock.host.output.frames import shared_library

SESSION = SimpleNamespace(charts="pages", vega=False)
vl_convert = pytest.importorskip("vl_convert", reason="extra 'interactive' is not installed")


class Reactor:
    """A kernel's loop, which has nothing else to do."""

    def __init__(self):
        self.watched = {}

    def call_later(self, _seconds, action):
        action()

    def watch(self, fd, action):
        self.watched[fd] = action

    def unwatch(self, fd):
        del self.watched[fd]


def test_vega_is_bundled_once_and_until_then_nobody_waits_for_it(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    reactor, began = Reactor(), time.monotonic()
    background.make_vega_later(reactor, SESSION)
    assert shared_library("vega") is None
    assert time.monotonic() - began < 0.5  # it takes a second and more
    ((fd, reap),) = reactor.watched.items()
    assert select.select([fd], [], [], 120)[0]
    reap()
    (kept,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert kept.read_text("utf-8") == vl_convert.javascript_bundle()
    assert shared_library("vega").name.startswith("vega-")
    background.make_vega_later(reactor, SESSION)
    assert not reactor.watched
    kept.chmod(0o666)  # one that others can write is not read
    assert background.read_vega() == b""
