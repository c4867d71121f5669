"""Which kernelspecs name the provisioner: jupyter_client hides one whose provisioner is unknown."""

import json
import os
import sys

import pytest

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
