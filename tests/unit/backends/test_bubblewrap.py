"""Options of bwrap without starting it."""

import os
from pathlib import Path

import pytest

from cellblock.backends import bubblewrap
from cellblock.backends.base import View
from cellblock.backends.bubblewrap import Bubblewrap, how_to_have
from cellblock.backends.plan import PROC_FILES

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")


def options(*, subprocess):
    found = View((), (), (), (), (), subprocess=subprocess)
    return " ".join(Bubblewrap().repeatable(["/usr/bin/true"], found))


def test_what_is_behind_it_ends_with_it_and_has_no_capability():
    said = options(subprocess=False)
    assert " --die-with-parent " in said
    assert " --cap-drop ALL " in said
    assert " --unshare-net " in said


def test_only_where_it_is_not_installed_it_is_to_be_installed(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(bubblewrap, "_SETTINGS", tmp_path)
    assert how_to_have("auto") == "install bubblewrap, and restart: sudo apt install bubblewrap"
    (tmp_path / "bwrap").touch(mode=0o755)
    assert "cellblock doctor" in how_to_have("auto")
    assert "apt " not in how_to_have("auto")
    setting = tmp_path / "kernel" / "apparmor_restrict_unprivileged_userns"
    setting.parent.mkdir()
    setting.write_text("1\n")
    assert "kernel.apparmor_restrict_unprivileged_userns is 1; to allow it: " in how_to_have("auto")
    assert "bubblewrap" not in how_to_have("landlock")


def test_programs_see_processes_and_what_the_table_has_of_proc_and_no_more():
    said = options(subprocess=True)
    files = [path for path, _ in PROC_FILES]
    for entry in Path("/proc").iterdir():
        path = str(entry)
        if entry.is_symlink() or entry.name.isdigit() or path in files:
            assert f" {path} " not in f"{said} ", path
        elif entry.is_dir():
            assert f" --tmpfs {path} " in said, path
            assert f" --remount-ro {path} " in said, path
        else:
            assert f" --ro-bind {os.devnull} {path} " in said, path
    for path in files:
        covered = path.count("/") > len("//")
        assert (f" --ro-bind-try {path} {path} " in said) is covered, path
    assert " --tmpfs /proc/" not in options(subprocess=False)
