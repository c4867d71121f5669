"""Several kernels at once, encrypted kernels, kernels of other users."""

from pathlib import Path

import pytest
import zmq

from conftest import USERS
from support import processes, reading
from support.client import Client, connection
from support.kernels import NOBODY, UNSAFE, Kernel, World, argv_for, nobody_prefix

# --- three at once ----------------------------------------------------------------------------


def test_kernels_run_side_by_side_and_share_nothing(start, world):
    kernels = [start("safe", world=world) for _ in range(2)]
    draw = "import random, secrets\n(random.random(), secrets.token_hex(4), hash('seed'))"
    drawn = [reading.result(kernel.run(draw)[1]) for kernel in kernels]
    assert drawn[0] != drawn[1]
    for n, kernel in enumerate(kernels):
        kernel.run(f"mine = {n}")
    waits = kernels[0].execute_send("input('still there? ') and mine", allow_stdin=True)
    kernels[0].recv("stdin")
    assert reading.result(kernels[1].run("mine")[1]) == "1"  # while a cell of the other one runs
    kernels[0].send("input_reply", {"value": "yes"}, "stdin")
    assert kernels[0].reply(waits)["content"]["status"] == "ok"
    assert reading.result(kernels[0].until_idle(waits)) == "0"
    trees = [set(k.tree()) for k in kernels]
    assert not trees[0] & trees[1]
    kernels[0].proc.kill()
    kernels[0].proc.wait(5)
    assert processes.gone(list(trees[0])) == []
    assert reading.result(kernels[1].run("mine")[1]) == "1"


# --- encryption -------------------------------------------------------------------------------


def test_an_encrypted_kernel_answers_who_has_its_key_and_nobody_else(start):
    kernel = start("safe", info=connection(encrypted=True))
    reply, published = kernel.run("6 * 7")
    assert reply["status"] == "ok"
    assert reading.result(published) == "42"
    clear = {k: v for k, v in kernel.info.items() if not k.startswith("curve")}
    another = clear | {"curve_publickey": zmq.curve_keypair()[0].decode()}
    for how, info in {"in the clear": clear, "with another key": another}.items():
        with Client(info) as stranger:
            stranger.execute_send("print('heard')")
            assert not stranger.shell.poll(300), how
            assert not stranger.iopub.poll(0), how
    assert kernel.run("1")[0]["status"] == "ok"


# --- users ------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=USERS)
def kernel(request):
    """A kernel in mode unsafe of this suite's user, then nobody's."""
    prefix = nobody_prefix() if request.param == "nobody" else ()
    if prefix is None:
        pytest.skip("this interpreter is out of reach for uid 65534, also in a mount namespace")
    world = World(NOBODY if prefix else None)
    with Kernel(UNSAFE, world=world, prefix=prefix).wait_ready() as made:
        made.own_world = True
        yield made


@pytest.mark.quick
def test_a_kernel_runs_for_root_and_for_others(kernel):
    reply, published = kernel.run("import os\nprint(os.getcwd())\n(os.getuid(), 6 * 7)")
    assert reply["status"] == "ok"
    assert reading.result(published).endswith("42)")
    assert kernel.run("open('mine', 'w').write('x')")[0]["status"] == "ok"
    assert kernel.run("x = 1")[0]["status"] == "ok"


@pytest.mark.quick
def test_the_guest_has_no_capability_and_no_way_to_gain_one(kernel):
    text = Path(f"/proc/{kernel.guest()}/status").read_text()
    status = dict(line.split(":\t", 1) for line in text.splitlines())
    for kind in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
        assert int(status[kind], 16) == 0
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


#: The others where there are namespaces: what is outside is not there.
REFUSED = {"PermissionError", "FileNotFoundError", "ProcessLookupError"}


def test_the_guest_reaches_neither_home_nor_host_nor_key(kernel):
    home = kernel.world.home
    (home / "secret").write_text("s3cret")
    kernel.world.give(home / "secret")
    for path in (home / "secret", kernel.file, f"/proc/{kernel.proc.pid}/environ"):
        assert kernel.run(f"open({str(path)!r}).read()")[0]["ename"] in REFUSED
    for action in (
        f"import os; os.kill({kernel.proc.pid}, 9)",
        f"import os; os.kill({kernel.zygote()}, 9)",
        f"import resource; resource.prlimit({kernel.proc.pid}, resource.RLIMIT_NOFILE, (3, 3))",
        f"import os; os.setpriority(os.PRIO_PROCESS, {kernel.proc.pid}, 19)",
    ):
        assert kernel.run(action)[0]["ename"] in REFUSED
    assert kernel.run("1")[0]["status"] == "ok"


def test_the_guest_inherits_no_descriptor_and_no_environment(kernel):
    code = "import os\nsorted(f for f in map(int, os.listdir('/proc/self/fd')) if f < 64)"
    reply, published = kernel.run(code)
    if reply["status"] == "ok":
        held = reading.result(published)
        assert held.startswith("[0, 1, 2, 3")
    names = set(eval(reading.result(kernel.run("import os\nsorted(os.environ)")[1])))
    assert names <= {
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "FORCE_COLOR",
        "GIT_PAGER",
        "HOME",
        "IPYTHONDIR",
        "JOBLIB_MULTIPROCESSING",
        "LANG",
        "LC_CTYPE",  # Python's own coercion
        "MPLBACKEND",
        "MPLCONFIGDIR",
        "PAGER",
        "PATH",
        "PYTHONDONTWRITEBYTECODE",
        "TERM",
        "TMPDIR",
        "USER",
    }
    assert reading.result(kernel.run("os.environ['USER']")[1]) == "'cellblock'"


def test_nothing_of_another_user_is_touched(somebody):
    with Kernel(argv_for("safe"), **somebody) as kernel:
        kernel.wait_ready()
        kernel.run("1")
    home = somebody["world"].home
    left = sorted(str(p.relative_to(home)) for p in home.rglob("*") if p.suffix != ".jsonl")
    made = ("audit", "history.sqlite", "wrappings")
    kept = ("", "/cellblock", *(f"/cellblock/{name}" for name in made))
    assert left == [f".cache{path}" for path in kept]


# --- what lies about --------------------------------------------------------------------------


def test_modules_beside_the_notebook_and_pythons_variables_run_nowhere(world, start):
    canary = world.root / "ran"
    evil = f"open({str(canary)!r}, 'a').write(__name__)\n"
    for name in ("IPython", "cellblock", "msgspec", "sitecustomize", "usercustomize", "zmq"):
        world.write(f"{name}.py", evil)
    startup = world.home / ".ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "first.py").write_text(evil)
    env = {"PYTHONPATH": str(world.work), "PYTHONSTARTUP": str(world.work / "zmq.py")}
    kernel = start("data", world=world, extra_env=env)
    assert kernel.run("%time 1")[0]["status"] == "ok"
    assert kernel.ask("is_complete_request", {"code": "%time 1"})["content"]["status"] == "complete"
    kernel.ask("complete_request", {"code": "import zm", "cursor_pos": 9})
    assert not canary.exists(), canary.read_text()
