"""Which kernelspecs name the provisioner: jupyter_client hides one whose provisioner is unknown."""

import json
import os
import sys

import pytest

from cellblock.errors import PolicyError
from cellblock.jupyter import install

NAMED = {"provisioner_name": "cellblock-provisioner"}


@pytest.mark.parametrize(
    ("below", "warm", "expected"),
    [
        ("own", None, NAMED),
        ("own", False, None),
        ("other", None, None),
        ("other", True, NAMED),
        ("system", None, None),
    ],
)
def test_a_server_without_cellblock_misses_no_kernel_unless_it_is_asked_for(
    tmp_path, monkeypatch, below, warm, expected
):
    prefix = tmp_path / below
    environment = tmp_path / ("own" if below == "other" else below)
    monkeypatch.setattr(sys, "prefix", str(environment))
    every_server = [str(tmp_path / "system" / "share" / "jupyter")]
    monkeypatch.setattr(install, "SYSTEM_JUPYTER_PATH", every_server)
    _, folder = install.install(
        "safe", name=None, display_name=None, prefix=prefix, allow_unsafe=False, warm=warm
    )
    spec = json.loads((folder / "kernel.json").read_text())
    assert spec["metadata"].get("kernel_provisioner") == expected


def test_other_users_find_a_kernel_that_an_operator_installs(tmp_path):
    before = os.umask(0o022)
    try:
        rest = {"name": "python3", "display_name": None, "allow_unsafe": False, "displace": True}
        _, folder = install.install("data", prefix=tmp_path, **rest)
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o755
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}


def test_nothing_beside_a_notebook_or_in_the_environment_is_imported_by_the_host(tmp_path):
    rest = {"name": None, "display_name": None, "allow_unsafe": False}
    _, folder = install.install("safe", prefix=tmp_path, **rest)
    argv = json.loads((folder / "kernel.json").read_text())["argv"]
    # -s: an operator's kernel is for several users, and reads no packages of theirs.
    assert argv[:6] == [sys.executable, "-E", "-P", "-s", "-m", "cellblock"]


def test_a_kernel_of_mode_unsafe_is_installed_when_that_is_asked_for(tmp_path):
    rest = {"name": None, "display_name": None, "prefix": tmp_path}
    policy = tmp_path / "wide.toml"
    policy.write_text('extends = "unsafe"\napprovals = "never"\n')
    with pytest.raises(PolicyError, match="mode unsafe has to be asked for"):
        install.install(str(policy), allow_unsafe=False, **rest)
    _, folder = install.install(str(policy), allow_unsafe=True, **rest)
    assert json.loads((folder / "kernel.json").read_text())["argv"][-1] == "--allow-unsafe"
