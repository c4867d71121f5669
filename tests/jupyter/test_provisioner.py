"""Kernels that wait in a server: by jupyter_client's managers, and by a real server."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager, start_new_kernel
from jupyter_client.multikernelmanager import AsyncMultiKernelManager, MultiKernelManager

from cellblock.jupyter import provisioner
from support import processes
from support.kernels import ROOT, argv_for

SPEC = json.loads((ROOT / "kernelspec" / "cellblock" / "kernel.json").read_text())
PROVISIONER = "cellblock-provisioner"


@pytest.fixture
def installed(world, monkeypatch):
    """Return a function that installs a kernelspec which names the provisioner."""
    folder = world.home / ".local/share/jupyter/kernels/cellblock"
    folder.mkdir(parents=True)
    for name, value in world.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(world.work)

    def install(policy="safe", **config):
        named = {"provisioner_name": PROVISIONER, "config": {"warm_after": 0.0} | config}
        metadata = SPEC["metadata"] | {"kernel_provisioner": named}
        spec = SPEC | {"argv": argv_for(policy), "metadata": metadata}
        (folder / "kernel.json").write_text(json.dumps(spec))

    yield install
    for name in list(provisioner._waiting._kernels):
        provisioner._waiting._end(name)
    assert processes.gone([]) == []
    assert list((world.root / "tmp").iterdir()) == []


def waiting():
    """Wait until a kernel waits, and is as far along as it gets; return its pid."""
    [(_, process)] = processes.until(lambda: list(provisioner._waiting._kernels.values()))

    def rests():
        before = processes.cpu_seconds(process.pid)
        time.sleep(0.3)
        now = processes.cpu_seconds(process.pid)
        return 0.1 < before == now and not any(map(processes.works, processes.tree(process.pid)))

    processes.until(rests, 60)
    return process.pid


class Running:
    """A kernel of a manager of several, with a client."""

    def __init__(self, manager, **launch):
        self.manager = manager
        self.id = manager.start_kernel(kernel_name="cellblock", **launch)
        self.kernel = manager.get_kernel(self.id)
        self.pid = self.kernel.provisioner.process.pid
        self.client = self.kernel.client()
        self.client.start_channels()
        self.client.wait_for_ready(30)

    def run(self, code):
        said = []

        def hear(message):
            said.append(message["content"].get("text", ""))

        reply = self.client.execute_interactive(code, timeout=30, output_hook=hear)["content"]
        return "".join(said).strip() if reply["status"] == "ok" else reply["ename"]

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(self.id)


@pytest.fixture
def manager(tmp_path):
    made = MultiKernelManager(connection_dir=str(tmp_path))
    yield made
    made.shutdown_all(now=True)


@pytest.mark.parametrize("policy", ["safe", "data"])
def test_the_next_kernel_is_the_one_that_waits_and_one_waits_again(
    policy, installed, manager, world
):
    installed(policy)
    first = Running(manager, cwd=str(world.work))
    ready = waiting()
    # Of its guests only what the first cell names is kept.
    prepared = {pid for pid in processes.tree(ready) if processes.name(pid) != "cb-guest"}
    second = Running(manager, cwd=str(world.work))
    assert second.pid == ready
    assert second.run("print(6 * 7)") == "42"
    assert prepared <= set(processes.tree(ready))
    assert second.run("open('new', 'w').close()") == ("PolicyDenied" if policy == "safe" else "")
    assert not (world.work / "new").exists()
    assert waiting() not in (first.pid, second.pid)
    first.close()
    second.close()


def test_it_has_the_folder_and_the_environment_of_its_launch_and_nothing_of_the_one_before(
    installed, manager, world
):
    policy = world.policy('extends = "data"\nenv_var_access = ["KERNEL_NAME", "OTHER"]\n')
    installed(policy)
    code = "import os; print(os.getcwd(), os.environ.get('KERNEL_NAME'), os.environ.get('OTHER'))"
    environment = {**os.environ, "KERNEL_NAME": "Ada", "OTHER": "one"}
    first = Running(manager, cwd=str(world.work), env=environment)
    assert first.run(code) == f"{world.work} Ada one"
    ready = waiting()
    elsewhere = world.work / "elsewhere"
    elsewhere.mkdir()
    second = Running(manager, cwd=str(elsewhere))
    assert (second.pid, second.run(code)) == (ready, f"{elsewhere} None None")
    named = second.run("import sys; print(*sys.argv[1:], os.environ['JPY_PARENT_PID'] != '')")
    assert named == f"-f {second.kernel.connection_file} True"
    ready = waiting()
    # Whatever else differs may have been read as the process began.
    third = Running(manager, cwd=str(world.work), env={**os.environ, "OTHER": "two"})
    assert (third.pid, third.run(code)) == (ready, f"{world.work} None two")
    for each in (first, second, third):
        each.close()


def test_it_has_imported_what_a_first_cell_is_likely_to_ask_for_where_nothing_differs(
    installed, manager, world
):
    elsewhere = world.work / "elsewhere"
    elsewhere.mkdir()
    installed(world.policy('extends = "data"\npreload_when_idle = ["xmlrpc.client"]'))
    code = "xmlrpc = 1; import sys; print('xmlrpc.client' in getattr(sys, 'mod' + 'ules'))"
    first = Running(manager, cwd=str(world.work))
    for folder, imported in ((world.work, "True"), (elsewhere, "False")):
        ready = waiting()
        ahead = [pid for pid in processes.tree(ready) if pid != ready]
        second = Running(manager, cwd=str(folder))
        assert (second.pid, second.run(code)) == (ready, imported)
        assert second.run("import os; print(os.getcwd())") == str(folder)
        assert processes.gone(ahead if folder is elsewhere else []) == []
        second.close()
    first.close()


def test_a_policy_that_changed_while_it_waited_is_in_force(installed, manager, world):
    installed(world.policy('extends = "data"'))
    first = Running(manager)
    assert first.run("import gc") == ""
    ready = waiting()
    world.policy('extends = "safe"')
    second = Running(manager)
    assert (second.pid, second.run("import gc")) == (ready, "PolicyDenied")
    first.close()
    second.close()


def test_it_is_interrupted_restarted_and_ended_as_any_other(installed, manager):
    installed()
    first = Running(manager)
    waiting()
    second = Running(manager)
    second.client.execute("print('go')\nimport time\ntime.sleep(60)")
    while second.client.get_iopub_msg(timeout=20)["msg_type"] != "stream":
        pass
    second.kernel.interrupt_kernel()
    assert second.client.get_shell_msg(timeout=20)["content"]["ename"] == "KeyboardInterrupt"
    ended = processes.tree(second.pid)
    second.kernel.restart_kernel()
    second.client.wait_for_ready(30)
    assert second.run("print(1)") == "1"
    assert processes.gone(ended) == []
    ended = processes.tree(second.kernel.provisioner.process.pid)
    second.close()
    first.close()
    assert processes.gone(ended) == []


def test_one_that_died_or_is_not_wanted_is_a_plain_start(installed, manager):
    installed()
    first = Running(manager)
    os.kill(waiting(), signal.SIGKILL)
    second = Running(manager)
    assert second.run("print(1)") == "1"
    ready = waiting()
    third = Running(manager, stderr=subprocess.DEVNULL)
    assert third.pid != ready
    for each in (first, second, third):
        each.close()


def test_asynchronous_managers_have_one_wait(installed):
    installed()

    async def twice():
        several = AsyncMultiKernelManager()
        await several.start_kernel(kernel_name="cellblock")
        ready = await asyncio.to_thread(waiting)
        second = await several.start_kernel(kernel_name="cellblock")
        assert several.get_kernel(second).provisioner.pid == ready
        client = several.get_kernel(second).client()
        client.start_channels()
        await client.wait_for_ready(30)
        client.stop_channels()
        await several.shutdown_all(now=True)

    asyncio.run(twice())


@pytest.mark.parametrize("warm", [True, False])
def test_none_waits_for_a_program_with_one_kernel_nor_where_that_is_turned_off(
    installed, manager, warm
):
    installed(warm=warm)
    if warm:
        single, client = start_new_kernel(kernel_name="cellblock")
        client.stop_channels()
        single.shutdown_kernel()
    else:
        Running(manager).close()
    time.sleep(0.5)
    assert provisioner._waiting._kernels == {}


def test_one_that_is_not_used_ends(installed, manager, world):
    installed("data", warm_seconds=6.0)
    first = Running(manager)
    ready = processes.tree(waiting())
    assert processes.gone(ready, 15.0) == []
    staged = world.home / ".local/share/cellblock/changes"
    assert len(list(staged.glob("cellblock-*"))) == 1  # the first one's
    assert first.run("print(1)") == "1"
    first.close()


def test_a_kernelspec_that_names_it_is_a_kernel_of_other_kinds_too(installed, world, manager):
    installed()
    file = world.home / ".local/share/jupyter/kernels/cellblock/kernel.json"
    spec = json.loads(file.read_text())
    spec["argv"] = [sys.executable, "-m", "ipykernel", "-f", "{connection_file}"]
    file.write_text(json.dumps(spec))
    kernel = Running(manager)
    assert kernel.run("print(1)") == "1"
    kernel.close()
    assert provisioner._waiting._kernels == {}


def answers(url):
    try:
        urllib.request.urlopen(f"{url}api", timeout=60).close()
    except OSError:
        return False
    return True


def test_a_server_has_one_wait_which_ends_when_the_server_is_killed(installed, world):
    installed()
    token = "a" * 40
    options = ["--no-browser", f"--IdentityProvider.token={token}", "--ServerApp.port_retries=50"]
    root = ["--allow-root"] if os.geteuid() == 0 else []
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyter_server", *options, *root],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        files = Path(world.root, "run")

        def written():
            return [one for one in files.glob("jpserver-*.json") if one.stat().st_size]

        found = processes.until(written, 60)
        url = json.loads(found[0].read_text())["url"]
        processes.until(lambda: answers(url), 60)  # it listens a little later

        def start():
            body = json.dumps({"name": "cellblock", "path": ""}).encode()
            headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}
            request = urllib.request.Request(f"{url}api/kernels", body, headers)
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["id"]

        def commands():
            pids = processes.tree(server.pid)
            return {pid: processes.read_file(pid, "cmdline").split(b"\0") for pid in pids}

        def that_waits():
            return [pid for pid, words in commands().items() if b"--warm" in words]

        start()
        [ready] = processes.until(that_waits)
        time.sleep(2)
        second = start()
        processes.until(lambda: [pid for pid in that_waits() if pid != ready])
        assert ready in commands()
        file = Path(world.root, "run", f"kernel-{second}.json")
        manager = KernelManager(connection_file=str(file))
        manager.load_connection_file()
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(30)
        assert client.execute_interactive("x = 1", timeout=30)["content"]["status"] == "ok"
        client.stop_channels()
        everything = processes.tree(server.pid)
    finally:
        server.kill()
        server.wait()
    assert processes.gone(everything, 15.0) == []
