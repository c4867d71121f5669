"""Real front ends: nbconvert, nbclient, jupyter console, and jupyter_client's manager."""

import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from support import processes, reading
from support.kernels import ROOT, argv_for

SPEC = json.loads((ROOT / "kernelspec" / "cellblock" / "kernel.json").read_text())
ALLOWED = ["x = 6\nprint('six', x)", "x * 7", "import math\nmath.tau"]
DENIED = ["print('before')", "import gc\ngc.collect()", "print('after')"]


@pytest.fixture
def jupyter(world):
    """Return an environment in which the kernelspec ``cellblock`` is installed."""
    folder = world.home / ".local/share/jupyter/kernels/cellblock"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps(SPEC | {"argv": argv_for("safe")}))
    yield world.environment()
    assert processes.gone([]) == []


def notebook(cells):
    return nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in cells],
        metadata={"kernelspec": {"name": "cellblock", "display_name": "cellblock"}},
    )


def nbconvert(world, env, cells, *options):
    path = world.work / "n.ipynb"
    nbformat.write(notebook(cells), path)
    return subprocess.run(
        [sys.executable, "-m", "nbconvert", "--execute", "--to", "notebook", *options,
         "--output", "out.ipynb", str(path)],
        check=False, capture_output=True, text=True, env=env, cwd=world.work, timeout=100,
    )  # fmt: skip


def outputs(world):
    cells = nbformat.read(world.work / "out.ipynb", 4).cells
    return [[o for o in cell.outputs if "enforcement" not in str(o)] for cell in cells]


@pytest.mark.quick
def test_nbconvert_runs_what_is_allowed_and_told_to_go_on_keeps_a_denial_as_output(world, jupyter):
    done = nbconvert(world, jupyter, ALLOWED + DENIED, "--allow-errors")
    assert done.returncode == 0, done.stderr
    first, second, third, before, denied, after = outputs(world)
    assert first[0]["text"] == "six 6\n"
    assert second[0]["data"]["text/plain"] == "42"
    assert third[0]["data"]["text/plain"].startswith("6.28")
    assert before[0]["text"] == "before\n"
    assert [o["output_type"] for o in denied] == ["display_data", "error"]
    assert denied[0]["data"]["text/plain"].startswith("cellblock did not run this cell")
    assert denied[1]["ename"] == "PolicyDenied"
    assert after[0]["text"] == "after\n"
    nbformat.validate(nbformat.read(world.work / "out.ipynb", 4))


@pytest.mark.quick
def test_nbconvert_fails_on_a_denied_cell_and_says_why(world, jupyter):
    done = nbconvert(world, jupyter, DENIED)
    assert done.returncode == 1
    text = reading.ANSI.sub("", done.stderr)
    assert "cellblock did not run this cell: 1 finding" in text
    assert "line 1  gc hands out every object in the process" in text
    assert 'add.allowed_modules = ["gc"]' in text
    assert not (world.work / "out.ipynb").exists()


@pytest.mark.quick
def test_nbclient_runs_a_notebook_and_raises_on_a_denied_and_on_a_stopped_cell(
    world, jupyter, monkeypatch
):
    for name, value in jupyter.items():
        monkeypatch.setenv(name, value)
    spec = world.home / ".local/share/jupyter/kernels/cellblock/kernel.json"
    spec.write_text(json.dumps(SPEC | {"argv": argv_for(world.policy("timeout = 0.5"))}))
    with pytest.raises(CellExecutionError) as caught:
        NotebookClient(notebook(DENIED), timeout=30).execute()
    assert caught.value.ename == "PolicyDenied"
    with pytest.raises(CellExecutionError) as caught:
        NotebookClient(notebook([*ALLOWED, "while True: pass"]), timeout=30).execute()
    assert caught.value.ename == "CellStopped"
    assert "it ran longer than 0.5 s (timeout)" in reading.ANSI.sub("", str(caught.value))


@pytest.mark.quick
def test_the_console_runs_denies_asks_and_interrupts(world, jupyter):
    pexpect = pytest.importorskip("pexpect", reason="pexpect is not installed")
    child = pexpect.spawn(
        sys.executable,
        ["-m", "jupyter_console", "--kernel", "cellblock", "--simple-prompt"],
        env=jupyter | {"TERM": "dumb", "COLUMNS": "100"},
        cwd=str(world.work),
        encoding="utf-8",
        timeout=20,
        dimensions=(40, 100),
    )
    try:
        child.expect(re.escape("In [1]:"))
        child.sendline("6 * 7")
        child.expect("42")
        child.expect(re.escape("In [2]:"))
        child.sendline("import gc")
        child.expect("cellblock did not run this cell: 1 finding")
        child.expect("import-not-allowed")
        child.expect(re.escape("In [3]:"))
        child.sendline("print('hello ' + input('Name? '))")
        child.expect(re.escape("Name? "))
        child.sendline("Ada")
        child.expect("hello Ada")
        child.expect(re.escape("In [4]:"))
        child.sendline("print('go'); import time; time.sleep(60)")
        child.expect("go\r\n")
        child.sendintr()
        child.expect("KeyboardInterrupt")
        child.expect(re.escape("In [5]:"))
        child.sendline("exit")
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)


@pytest.mark.quick
def test_a_manager_restarts_interrupts_and_shuts_down(world, jupyter, monkeypatch):
    for name, value in jupyter.items():
        monkeypatch.setenv(name, value)
    manager = KernelManager(kernel_name="cellblock")
    manager.start_kernel(cwd=str(world.work))
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(20)
    try:
        assert client.execute_interactive("x = 1", timeout=20)["content"]["status"] == "ok"
        first = processes.tree(manager.provisioner.process.pid)
        manager.restart_kernel(now=False)
        client.wait_for_ready(20)
        assert processes.gone(first) == []
        reply = client.execute_interactive("x", timeout=20, output_hook=lambda _: None)
        assert reply["content"]["ename"] == "NameError"
        client.execute("print('go')\nimport time\ntime.sleep(60)")
        while client.get_iopub_msg(timeout=20)["msg_type"] != "stream":
            pass
        manager.interrupt_kernel()
        assert client.get_shell_msg(timeout=20)["content"]["ename"] == "KeyboardInterrupt"
        second = processes.tree(manager.provisioner.process.pid)
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    assert processes.gone(second) == []


# --- encryption -------------------------------------------------------------------------------


def test_the_kernelspecs_declare_curve():
    for path in (ROOT / "kernelspec").glob("*/kernel.json"):
        spec = json.loads(path.read_text())
        assert spec["metadata"]["supported_encryption"] == ["curve"]
        assert spec["interrupt_mode"] == "message"
        assert spec["argv"][1:3] == ["-E", "-P"]


@pytest.mark.skipif(
    not hasattr(KernelManager, "transport_encryption"),
    reason="this jupyter_client has no encrypted transport",
)
def test_a_manager_that_requires_encryption_gets_it(world, jupyter, monkeypatch):
    for name, value in jupyter.items():
        monkeypatch.setenv(name, value)
    manager = KernelManager(kernel_name="cellblock", transport_encryption="required")
    manager.start_kernel(cwd=str(world.work))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(20)
        assert json.loads(Path(manager.connection_file).read_text())["curve_publickey"]
        assert client.execute_interactive("1", timeout=20)["content"]["status"] == "ok"
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
