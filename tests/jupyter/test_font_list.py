"""matplotlib's list of fonts is made once, by the host, from nothing that cells or checkouts wrote."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cellblock import Sandbox
from cellblock.jupyter import preparation
from cellblock.policy.model import Policy
from support.idle_reactor import IdleReactor

pytest.importorskip("matplotlib", reason="extra 'data' is not installed")


LOOK = "import os, matplotlib; at, = (e.path for e in os.scandir(matplotlib.get_cachedir()))"


def test_each_session_has_a_copy_of_a_list_that_a_process_of_the_hosts_made(tmp_path, monkeypatch):
    project, cache = tmp_path / "project", tmp_path / "cache"
    (project / "matplotlib").mkdir(parents=True)
    (project / "matplotlib/font_manager.py").write_text("raise SystemExit")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.syspath_prepend(project)
    reactor = IdleReactor()
    preparation.make_later(reactor, SimpleNamespace(charts="stills", vega=False))
    reactor.wait()
    (made,) = cache.glob("*/matplotlib/*")
    assert made.suffix == ".json"
    kept = made.read_bytes()
    with Sandbox(Policy.preset("data"), project=tmp_path, cwd=tmp_path) as sandbox:
        assert sandbox.execute(f"{LOOK}; before = os.stat(at).st_mtime_ns").success
        used = "import matplotlib.pyplot; os.stat(at).st_mtime_ns == before"
        assert sandbox.execute(used).result == "True"
        assert sandbox.execute("open(at, 'w').write('{}')").success
    assert made.read_bytes() == kept
