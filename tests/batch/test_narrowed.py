"""Notebooks that leave less of the policy, by metadata or by a cell: in the same run as all others."""

import json

import pytest

from cellblock.host.audit import log as chain
from support.runs import texts, write

POLICY = """
extends = "safe"
allowed_modules = ["os"]
filesystem_read_roots = ["{project}"]
timeout = 20
"""
LIST = "import os\nlen(os.listdir({!r}))"


def asking(**policy):
    return {"cellblock": {"policy": policy}}


#: By name: metadata, cells, status, and what each cell shows; None for a notebook that is not written.
NOTEBOOKS = {
    "plain": ({}, [LIST.format("..")], "passed", ["2"]),
    "time": (asking(timeout=1), ["while True: pass"], "timed out", ["CellStopped"]),
    "again": (asking(timeout=1), ["'same'"], "passed", ["'same'"]),
    "modules": (asking(allowed_modules=[]), ["1", "import gc"], "denied", ["1", "PolicyDenied"]),
    "paths": (
        asking(filesystem_read_roots=["data"]),
        [LIST.format("WORK/nb/data"), LIST.format("WORK/nb")],
        "failed",
        ["1", "PermissionError"],
    ),
    "wider": (asking(timeout=21), ["1"], "denied", None),
    "beside": (asking(filesystem_read_roots=["../.."]), ["1"], "denied", None),
    "link": (asking(filesystem_read_roots=["etc"]), ["1"], "denied", None),
    "torn": ({"cellblock": {"polcy": {}}}, ["1"], "denied", None),
    "huge": ({"cellblock": {str(n): [n] for n in range(20_000)}}, ["1"], "denied", None),
    "deep": ({"cellblock": {"policy": {"timeout": [[[[[[1]]]]]]}}}, ["1"], "denied", None),
    "keeps": (
        {},
        ["import os\nx = len(os.listdir('..'))", "%policy narrow filesystem_read_roots=[]", "x", LIST.format("..")],
        "failed",
        ["", "", "2", "PermissionError"],
    ),
    "fresh": (
        {},
        ["x = 1", "%policy narrow --fresh allowed_modules=[]", "import gc"],
        "denied",
        ["", "", "PolicyDenied"],
    ),
    "costs": ({}, ["x = 1", "%policy narrow allowed_modules=[]", "x"], "denied", ["", "PolicyDenied", ""]),
    "both": (asking(timeout=10), ["%policy narrow timeout=15"], "denied", ["PolicyDenied"]),
}  # fmt: skip
REASONS = {
    "wider": "timeout: a notebook can't have more than the policy: 21 is more than 20",
    "torn": "metadata.cellblock.polcy: no such key Instead: Did you mean policy?",
    "huge": "metadata.cellblock: larger than 64 KiB Instead: A policy is a page of text.",
    "time": "cellblock stopped this cell: it ran longer than 1 s (timeout).",
}


@pytest.fixture(scope="module")
def ran(run_shared):
    """Return how a run over all of them ended."""
    for name, (metadata, cells, *_) in NOTEBOOKS.items():
        made = [cell.replace("WORK", str(run_shared.work)) for cell in cells]
        write(run_shared.work / f"nb/{name}.ipynb", *made, metadata=metadata)
    write(run_shared.work / "nb/data/inner.ipynb", "1")
    (run_shared.work / "nb/etc").symlink_to("/etc")
    run_shared.ended = run_shared("nb", "-o", "out", "--policy", run_shared.world.policy(POLICY))
    return run_shared


def test_each_is_run_under_what_it_leaves_and_none_under_more(ran):
    expected = {f"nb/{name}.ipynb": status for name, (_, _, status, _) in NOTEBOOKS.items()}
    expected["nb/data/inner.ipynb"] = "passed"
    assert (ran.ended.statuses, ran.ended.status, ran.ended.err) == (expected, 1, "")


def test_what_their_cells_show_and_why_others_are_not_run(ran):
    for name, (_, _, _, shown) in NOTEBOOKS.items():
        path = ran.work / f"out/nb/{name}.ipynb"
        assert path.exists() is (shown is not None), name
        assert shown is None or texts(path) == shown, name
    for name, said in REASONS.items():
        text = ran.ended.out.split(f"nb/{name}.ipynb  (", 1)[1].split("cell)", 1)[0]
        assert said in " ".join(text.split()), name


def test_the_audit_log_says_what_a_notebook_changed_and_which(ran):
    found = {}
    for session in chain.sessions(ran.audit_folder):
        lines = session.file.read_bytes().splitlines()
        for record in map(json.loads, lines):
            if record["kind"] == "narrowing" and record.get("file"):
                found[record["file"]] = record["fields"]
    names = ("time", "again", "modules", "paths", "both")
    assert {name.rpartition("/")[2] for name in found} == {f"{name}.ipynb" for name in names}
    assert found[str(ran.work / "nb/again.ipynb")] == {"timeout": "1"}
