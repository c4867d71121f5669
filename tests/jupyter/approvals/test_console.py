"""A question of the host's in `jupyter console`, answered by somebody at a terminal."""

import json
import re
import sys

import pytest

from support.kernels import ROOT, argv_for

SPEC = json.loads((ROOT / "kernelspec" / "cellblock" / "kernel.json").read_text())


@pytest.fixture
def console(world):
    """Return a console at its second prompt."""
    pexpect = pytest.importorskip("pexpect", reason="pexpect is not installed")
    folder = world.home / ".local/share/jupyter/kernels/cellblock"
    folder.mkdir(parents=True)
    argv = argv_for(world.policy('approvals = "prompt"'))
    (folder / "kernel.json").write_text(json.dumps(SPEC | {"argv": argv}))
    for _ in range(5):
        child = pexpect.spawn(
            sys.executable,
            ["-m", "jupyter_console", "--kernel", "cellblock", "--simple-prompt"],
            env=world.environment() | {"TERM": "dumb", "COLUMNS": "100"},
            cwd=str(world.work),
            encoding="utf-8",
            timeout=30,
            dimensions=(40, 100),
        )
        child.expect(re.escape("In [1]:"))
        # The console may take the idle of its own request for information for its first cell's, and
        # then is deaf to what comes of it, and to questions.
        child.sendline("6 * 7")
        hears = child.expect([re.escape("In [2]:"), r"\b42\b"])
        if hears:
            child.expect(re.escape("In [2]:"))
            yield child
        child.close(force=True)
        if hears:
            return
    pytest.fail("the console was deaf to its first cell five times")


def test_a_console_asks_takes_the_code_and_no_other_answer(console):
    console.sendline("import shlex; shlex.split('a b')")
    console.expect(re.escape("┃ cellblock asks: may cell [2] import shlex?"))
    console.expect(r"type (\d{3}) \(once\)")
    console.expect("┃ Answer: ")
    console.sendline("once")
    console.expect("That was not taken")
    console.expect("┃ Answer: ")
    console.sendline("no")
    console.expect("cellblock did not run this cell: 1 finding")
    console.expect(re.escape("In [3]:"))
    console.sendline("import shlex; shlex.split('a b')")
    console.expect(r"type (\d{3}) \(once\)")
    code = console.match[1]
    console.expect("┃ Answer: ")
    console.sendline(f"{code} session")
    console.expect(re.escape("['a', 'b']"))
    console.expect(re.escape("In [4]:"))


def test_what_is_typed_ahead_allows_nothing(console):
    for line in ("import shlex", "once", "always"):
        console.sendline(line)
    console.expect("That was not taken")
    console.expect("cellblock did not run this cell: 1 finding")
