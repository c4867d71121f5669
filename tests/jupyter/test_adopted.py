"""A kernel that is restarted shows cells what they staged before; another one does not."""

import json
import shutil
import signal
import subprocess
import sys

import pytest

from cellblock.backends.layers import receives_mounts
from support import machines, processes, reading
from support.kernels import Kernel, argv_for, world_and_prefix

POLICY = """
extends = "data"
filesystem_read_roots = ["{project}"]
filesystem_staged_roots = ["{project}"]
"""
WAYS = [(user, backend) for user in machines.users() for backend in ("landlock", "bubblewrap")]
SHOWN = "shows cells what they wrote to your project before"
LEFT = "does not show cells what they wrote to your project before"


class Starts:
    """Starts kernels one after the other in a world, with one connection file unless told."""

    def __init__(self, user, backend):
        self.world, self.prefix = world_and_prefix(user)
        self.backend = self.world.backend = backend
        self.world.write("old.csv", "before\n")
        self.kernel, self.info = None, None

    def __call__(self, extra="", *, notebook="", fresh=False, **environment):
        policy = self.world.policy(f'backend = "{self.backend}"\n{POLICY}{extra}')
        if notebook:
            environment["JPY_SESSION_NAME"] = str(self.world.work / notebook)
        info = None if fresh else self.info
        self.kernel = Kernel(
            argv_for(policy), world=self.world, prefix=self.prefix, info=info, extra_env=environment
        )
        self.info = self.info or self.kernel.info
        return self.kernel.wait_heard()

    def end(self, *, restart=False, killed=False):
        pids = self.kernel.tree()
        if killed:
            self.kernel.proc.send_signal(signal.SIGKILL)
            self.kernel.proc.wait(10)
        elif restart:
            self.kernel.send("shutdown_request", {"restart": True}, "control")
            self.kernel.proc.wait(10)
        left = self.kernel.end()
        assert left == []
        assert processes.gone(pids) == []

    def layers(self):
        return sorted(self.world.home.glob(".local/share/cellblock/changes/*"))

    def command(self, *words):
        program = [f"{sys.prefix}/bin/cellblock", "changes", *words]
        environment = self.world.environment()
        ran = subprocess.run(
            [*self.prefix, *program],
            env=environment,
            cwd=self.world.work,
            capture_output=True,
            text=True,
            check=False,
        )
        return ran.stdout + ran.stderr


@pytest.fixture(params=WAYS, ids=" ".join)
def start(request):
    made = Starts(*request.param)
    yield made
    made.kernel.close()
    made.world.close()


@pytest.fixture
def start_here():
    made = Starts("same user", "landlock")
    yield made
    made.kernel.close()
    made.world.close()


def said(published):
    return reading.notices(published)


@pytest.mark.parametrize("killed", [False, True])
def test_after_a_restart_cells_see_their_files_and_keeping_works_once(start, killed):
    kernel = start()
    kernel.run("import os; open('new.csv', 'w').write('a'); open('old.csv', 'a').write('b')")
    kernel.run("os.makedirs('out')")
    kernel.run("open(os.path.expanduser('~/results.csv'), 'w').write('d')")
    kernel.run("os.chmod('.', 0)")  # nobody is kept out of what was staged by that
    start.end(restart=True, killed=killed)
    assert "To keep it" not in kernel.stderr()
    kernel = start()
    _, published = kernel.run("open('new.csv').read(), open('old.csv').read()")
    assert reading.result(published) == "('a', 'before\\nb')"
    assert SHOWN in said(published)
    _, published = kernel.run("import os; open(os.path.expanduser('~/results.csv')).read()")
    assert reading.result(published) == "'d'"
    assert kernel.run("_ = open('out/x', 'w').write('c')")[0]["status"] == "ok"
    _, published = kernel.run("%changes")
    shown = reading.card_text(published)
    names = ("new.csv", "old.csv", "out/x", "~/results.csv")
    assert [name in shown for name in names] == [True] * 4
    (layer,) = start.layers()
    start.end()
    assert start.command("keep", layer.name).endswith("kept 4\n")
    assert (kernel.world.work / "new.csv").read_text() == "a"
    assert (kernel.world.home / "results.csv").read_text() == "d"
    assert "nothing" in start.command("keep", layer.name, "new.csv")


def test_what_was_kept_is_the_users_after_a_restart_and_what_was_dropped_is_gone(start_here):
    start = start_here
    start().run("open('new.csv', 'w').write('a'); open('other', 'w').write('b')")
    (layer,) = start.layers()
    assert "kept 1" in start.command("keep", layer.name, "new.csv")
    start.world.write("new.csv", "the user's")
    start.end(restart=True)
    kernel = start()
    _, published = kernel.run("open('new.csv').read(), open('other').read()")
    assert reading.result(published) == "(\"the user's\", 'b')"
    kernel.run("%changes drop")
    start.end(restart=True)
    kernel = start()
    _, published = kernel.run("import os; sorted(os.listdir())")
    assert reading.result(published) == "['new.csv', 'old.csv']"
    assert SHOWN not in said(published)


def test_another_kernel_of_the_notebook_goes_on_with_it_but_not_two_at_a_time(start_here):
    start = start_here
    first = start(notebook="a.ipynb")
    first.run("open('new.csv', 'w').write('a')")
    second = start(notebook="a.ipynb", fresh=True)
    _, published = second.run("open('new.csv')")
    assert f"{LEFT}: another kernel of it runs" in said(published)
    assert reading.of(published, "error")[0]["ename"] == "FileNotFoundError"
    start.end()
    start.kernel = first
    start.end()
    start(notebook="b.ipynb", fresh=True)
    assert "FileNotFoundError" in str(start.kernel.run("open('new.csv')")[1])
    start.end()
    _, published = start(notebook="a.ipynb", fresh=True).run("open('new.csv').read()")
    assert reading.result(published) == "'a'"


def test_a_layer_that_a_zygote_still_has_is_not_adopted(start_here):
    start = start_here
    kernel = start()
    kernel.run("open('new.csv', 'w').write('a')")
    (layer,) = start.layers()
    holder = subprocess.Popen(["flock", "--shared", layer / "0", "sleep", "60"])
    start.end(restart=True)
    try:
        _, published = start().run("open('new.csv')")
    finally:
        holder.kill()
        holder.wait()
    assert f"{LEFT}: its processes still run" in said(published)
    assert f"cellblock changes keep {layer.name}" in said(published)


def relink(layer, world):
    moved = world.root / "moved"
    shutil.move(layer / "0" / "upper", moved)
    (layer / "0" / "upper").symlink_to(moved)


def widen(layer, _):
    info = json.loads((layer / "session.json").read_text())
    info["asked"]["filesystem_read_roots"] = []
    (layer / "session.json").write_text(json.dumps(info))


SPOILT = {
    "others than you could have changed": lambda layer, _: layer.chmod(0o777),
    "others than you": relink,
    "this policy allows more": widen,
    "it was of another folder": lambda _, world: (
        world.work.rename(world.root / "was"),
        shutil.copytree(world.root / "was", world.work),
    ),
    "it has secret, which is denied now": lambda layer, _: (layer / "0/upper/secret").mkdir(),
}


@pytest.mark.parametrize("why", SPOILT)
def test_what_is_not_ours_or_less_strict_is_not_adopted_and_where_it_is_is_said(start_here, why):
    start = start_here
    start().run("open('new.csv', 'w').write('a')")
    (layer,) = start.layers()
    start.end(restart=True)
    SPOILT[why](layer, start.world)
    denied = f'add.read_deny_paths = ["{start.world.work}/secret"]\n'
    _, published = start(denied).run("open('new.csv')")
    assert f"{LEFT}: {why}" in said(published)
    assert f"cellblock changes keep {layer.name}" in said(published)
    assert reading.of(published, "error")[0]["ename"] == "FileNotFoundError"


def test_denials_of_a_narrower_policy_hold_in_what_is_adopted(start):
    start.world.write("secret", "SECRET")
    start().run("open('new.csv', 'w').write('a')")
    start.end(restart=True)
    kernel = start(f'add.read_deny_paths = ["{start.world.work}/secret"]\n')
    _, published = kernel.run("open('new.csv').read()")
    assert reading.result(published) == "'a'"
    assert "FileNotFoundError" in str(kernel.run("open('secret').read()")[1])
    start.end(restart=True)
    _, published = start().run("open('new.csv')")
    assert f"{LEFT}: this policy allows more" in said(published)


def test_a_folder_that_cells_shut_themselves_out_of_stops_no_guest_and_loses_nothing(start):
    kernel = start('snapshots = "off"')
    kernel.run("import os; _ = open('new.csv', 'w').write('a')")
    reply = kernel.run("os.chmod('.', 0); os._exit(1)")[0]
    if reply["ename"] == "PermissionError":  # no cell shuts itself out: see ``receives_mounts``
        assert receives_mounts()
        return
    assert reply["ename"] == "CellStopped"
    reply, published = kernel.run("import os; os.getcwd()")
    assert reply["status"] == "ok"
    above = str(kernel.world.work.parent)
    assert reading.result(published) == repr(above)
    assert f"begins cells in {above}: they can't enter {kernel.world.work}" in said(published)
    assert kernel.run(f"os.chmod({str(kernel.world.work)!r}, 0o755)")[0]["status"] == "ok"
    start.end(restart=True)
    kernel = start('snapshots = "off"')
    _, published = kernel.run("import os; os.getcwd(), open('new.csv').read()")
    assert reading.result(published) == repr((str(kernel.world.work), "a"))
