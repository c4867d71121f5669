"""Vega is bundled by a process of the host's, once, and nobody waits for it."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from cellblock.host.guests import background
from cellblock.host.output.frames import shared_library
from cellblock.jupyter import preparation
from support.idle_reactor import IdleReactor

SESSION = SimpleNamespace(charts="pages", vega=False)
vl_convert = pytest.importorskip("vl_convert", reason="extra 'interactive' is not installed")


def test_vega_is_bundled_once_and_until_then_nobody_waits_for_it(monkeypatch, tmp_path):
    monkeypatch.setattr(background, "stale_font_list", lambda: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    reactor, began = IdleReactor(), time.monotonic()
    preparation.make_later(reactor, SESSION)
    assert shared_library("vega") is None
    assert time.monotonic() - began < 0.5  # it takes a second and more
    reactor.wait()
    (kept,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert kept.read_text("utf-8") == vl_convert.javascript_bundle()
    assert shared_library("vega").name.startswith("vega-")
    preparation.make_later(reactor, SESSION)
    assert not reactor.watched
    kept.chmod(0o666)  # one that others can write is not read
    assert background.read_vega() == b""
