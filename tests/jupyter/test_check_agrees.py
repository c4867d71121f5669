"""What the kernel refuses by admission, `cellblock check` finds, and nothing else: one verdict."""

import os
from unittest import mock

import msgspec
import pytest

from cellblock.batch.check import judge_context
from cellblock.batch.judge import judge
from cellblock.batch.verdict import CheckOptions, FileKind
from cellblock.policy.load import load_for_check
from support import reading
from support.admission import FINE, MARK, OBSERVE, RESET, approve, notebook
from support.kernels import Kernel, World, argv_for

APPROVED = (OBSERVE, RESET, FINE, "import gc", '%%template describe\n{"numbers": [1, 2]}')
CELLS = (
    *APPROVED,
    MARK,
    f"%%time\n{MARK}",
    f"%time {MARK}",
    f"{FINE}\n{MARK}",
    "",
    " \n",
    "#",
    "%policy",
    "%usage",
    "%template",
    "%template describe",
    "%policy narrow timeout=10",
    "%usage {1}",
    "x?",
    "!ls",
    FINE.replace("'", '"'),
    f"{FINE}\n",
    '\n%%template describe\n{"numbers": [1, 2, 4], "digits": 1}',
    '%%template describe\n{"numbers": [1, "x"], "more": 1}',
    "%%template describe\n{",
    "%%template ../describe",
    "%%template echo",
    '%%template opens\n{"path": "/etc/hostname"}',
    '%%time\n%%template describe\n{"numbers": [1, 2]}',
)


@pytest.fixture(scope="module")
def world():
    made = World()
    folder = made.root / "templates"
    folder.mkdir(mode=0o755)
    (folder / "opens.py").write_text("def run(state):\n    return open(state['path']).read()\n")
    (folder / "opens.schema.json").write_text("{}")
    yield made
    made.close()


def found_by_kernel(kernel, cell):
    reply, published = kernel.run(cell)
    if reply["status"] == "ok":
        return []
    assert reply["ename"] == "PolicyDenied", reply
    return sorted(one["rule"] for one in reading.cards(published, "denial")[-1]["findings"])


def found_by_check(world, policy, cell):
    path = notebook(world, cell)
    place = os.fsencode(world.work)
    options = msgspec.structs.replace(
        CheckOptions.of(load_for_check(str(policy))), project=place, folder=place
    )
    with mock.patch.dict(os.environ, HOME=str(world.home)):
        os.environ.pop("XDG_DATA_HOME", None)
        verdict = judge(path.read_bytes(), FileKind.notebook, judge_context(options), path)
    assert verdict.problem == ""
    return sorted(one.finding.rule for one in verdict.findings)


@pytest.mark.parametrize("admission", ["approved", "template", "any"])
def test_check_and_kernel_refuse_the_same_cells_by_the_same_rules(world, admission):
    folders = f'templates.folders = ["{{shipped}}", "{world.root}/templates"]\n'
    policy = world.policy(f'admission = "{admission}"\n{folders}', admission)
    if admission == "approved":
        approve(world, policy, *APPROVED)
    with Kernel(argv_for(policy), world=world).wait_heard() as kernel:
        told = {cell: found_by_kernel(kernel, cell) for cell in CELLS}
    assert {cell: found_by_check(world, policy, cell) for cell in CELLS} == told
