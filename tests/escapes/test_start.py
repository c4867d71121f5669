"""How a kernel starts, seen from outside: what its processes hold, and what they were handed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager

from support import doors, machines, reading
from support.kernels import ROOT, UNSAFE, Kernel, argv_for, nobody_prefix, world_and_prefix

#: Nothing is closed to root: what others of the same user can do is shown as somebody else.
ROOT_STARTS = os.geteuid() == 0
USERS = machines.users()
unprivileged = pytest.mark.parametrize("door", USERS[-1:], indirect=True)


@pytest.fixture(scope="module", params=USERS)
def door(request):
    """One kernel in mode unsafe with secrets around it; nothing but the OS layer holds there."""
    world, prefix = world_and_prefix(request.param)
    prey = doors.Prey(world)
    kernel = Kernel(UNSAFE, world=world, prefix=prefix, extra_env=prey.environment)
    doors.wait_ready(kernel).run("1")
    yield doors.Door(kernel, prey, UNSAFE)
    kernel.close()
    world.close()


def processes_of(kernel):
    tree = kernel.tree()
    host = next(p for p in tree if b"-m\0cellblock" in command_line(p))
    return {"host": host, "zygote": kernel.zygote(), "guest": kernel.guest()}


def in_namespaces(door):
    return door.kernel.world.backend == "bubblewrap"


def command_line(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def status(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


# --- memory -----------------------------------------------------------------------------------


def memory_holds(pid, *needles):
    """Return which of ``needles`` stand anywhere in a process's memory."""
    found, longest = set(), max(map(len, needles))
    with Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().split("\n")[:-1]:
            start, end = (int(part, 16) for part in line.partition(" ")[0].split("-"))
            if "r" not in line.split()[1] or "[v" in line:
                continue
            tail = b""
            for at in range(start, end, 1 << 24):
                try:
                    memory.seek(at)
                    piece = tail + memory.read(min(1 << 24, end - at))
                except (OSError, ValueError, OverflowError):
                    break
                found |= {needle for needle in needles if needle in piece}
                tail = piece[-longest:]
    return found


needs_root = pytest.mark.skipif(
    not ROOT_STARTS, reason="only root may look into a process that is not dumpable"
)


@needs_root
def test_neither_key_nor_secret_is_in_memory(door):
    pids = processes_of(door.kernel)
    # Its own name a guest has, as cells find it in ``sys.argv``; a zygote knows no session.
    secrets, names = [door.kernel.info["key"], door.token], [str(door.kernel.file)]
    for whose, needles in (("guest", secrets), ("zygote", secrets + names)):
        found = memory_holds(pids[whose], *(text.encode() for text in needles))
        assert found == set(), whose


@needs_root
def test_positive_control_what_is_in_memory_is_found_there(door):
    pids = processes_of(door.kernel)
    wanted = {door.kernel.info["key"].encode(), door.token.encode()}
    assert memory_holds(pids["host"], *wanted) == wanted
    door.run("planted = 'seed' + 'ling-in-memory'")
    assert memory_holds(pids["guest"], b"seedling-in-memory")


@needs_root
def test_what_the_host_hears_later_does_not_come_to_the_next_guest(door):
    """The next guest is forked from the zygote, which never hears a cell."""
    door.run("'heard-by-' + 'one-guest-only'")
    door.run("kept = 1")
    while door.run("kept")[0]["status"] == "ok":  # until no snapshot is left to take over
        time.sleep(0.2)
        for pid in (*door.kernel.copies(), door.kernel.guest()):
            os.kill(pid, signal.SIGKILL)
    assert door.run("1")[0]["status"] == "ok"
    pids = processes_of(door.kernel)
    needle = b"heard-by-one-guest-only"
    assert memory_holds(pids["guest"], needle) | memory_holds(pids["zygote"], needle) == set()


# --- what others of the same user can do --------------------------------------------------------

PEEK = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for pid in map(int, sys.argv[1:]):
    try:
        open(f"/proc/{pid}/mem", "rb").close()
        said = "memory"
    except OSError:
        said = "closed"
    attached = libc.ptrace(16, pid, 0, 0)  # PTRACE_ATTACH
    if attached == 0:
        os.waitpid(pid, 0)
        libc.ptrace(17, pid, 0, 0)
    print(said, attached)
"""


def restricted():
    """Say whether the OS kernel lets nobody trace anybody who is not a child (Yama)."""
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    return scope.exists() and scope.read_text().strip() != "0"


@unprivileged
def test_another_process_of_the_same_user_reads_no_memory_and_traces_nobody(door):
    pids = processes_of(door.kernel)
    prefix = nobody_prefix() if door.kernel.world.user else ()
    plain = subprocess.Popen([*prefix, sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        while b"input()" not in command_line(plain.pid) or b"-c" not in command_line(plain.pid):
            pass
        while status(plain.pid)["Uid"].split()[0] != str(door.kernel.world.user or os.geteuid()):
            pass
        # The control comes last: it may be traced.
        asked = [*pids.values(), plain.pid]
        done = subprocess.run(
            [*prefix, sys.executable, "-c", PEEK, *map(str, asked)],
            check=True, capture_output=True, text=True, timeout=30,
        )  # fmt: skip
    finally:
        plain.communicate(b"\n")
    *ours, control = done.stdout.splitlines()
    assert ours[0] == "closed -1"
    # Whoever owns a user namespace may trace all that is in it: disclosed (threat-model.md).
    below = {"closed -1", "closed 0"} if in_namespaces(door) else {"closed -1"}
    assert set(ours[1:]) <= below
    assert control == ("memory 0" if not restricted() else "closed -1")


@unprivileged
def test_no_process_is_dumpable(door):
    """What is not dumpable belongs to root in /proc (proc(5))."""
    for whose, pid in processes_of(door.kernel).items():
        assert Path(f"/proc/{pid}/environ").stat().st_uid == 0, whose


# --- what was handed on ---------------------------------------------------------------------------


@pytest.mark.quick
def test_command_lines_and_environments_below_the_host_tell_nothing(door):
    pids = processes_of(door.kernel)
    assert str(door.kernel.file).encode() in command_line(pids["host"])
    for whose in ("zygote", "guest"):
        told = command_line(pids[whose])
        if ROOT_STARTS:
            told += Path(f"/proc/{pids[whose]}/environ").read_bytes()
            # By bwrap, before the zygote began.
            assert Path(f"/proc/{pids[whose]}/environ").read_bytes() in {b"", b"PWD=/\0"}
        for secret in (door.token, door.kernel.file.name, door.kernel.info["key"], "HOME="):
            assert secret.encode() not in told
    if ROOT_STARTS:
        assert door.token.encode() in Path(f"/proc/{pids['host']}/environ").read_bytes()


def test_the_guest_has_a_session_of_its_own_without_a_terminal(door):
    pids = processes_of(door.kernel)
    sessions = {whose: os.getsid(pid) for whose, pid in pids.items()}
    assert len(set(sessions.values())) == 3
    # A snapshot that took over is in the session of the guest that it was made of.
    assert {os.getsid(pid) for pid in door.kernel.copies()} <= {sessions["guest"]}
    fields = Path(f"/proc/{pids['guest']}/stat").read_text().rpartition(")")[2].split()
    assert fields[4] == "0"  # tty_nr
    assert door.run("open('/dev/tty')")[0]["status"] == "error"


@pytest.mark.quick
def test_the_folders_of_the_guest_are_its_own(door):
    code = "import os\n[os.environ['HOME'], os.environ['TMPDIR'], os.getcwd(), os.path.expanduser('~')]"
    folders = set(eval(reading.result(door.run(code)[1])))
    assert len(folders) == 1
    (folder,) = map(Path, folders)
    assert folder.parents[1] == door.prey.world.root / "tmp"
    assert (folder.stat().st_mode | folder.parent.stat().st_mode) & 0o077 == 0


# --- what it was started with -----------------------------------------------------------------------


def started(start, world, shell, **extra):
    """Start a kernel behind a shell's words."""
    return start("unsafe", "--allow-unsafe", world=world, prefix=("sh", "-c", shell, "sh"), **extra)


def test_signals_that_were_ignored_are_not_in_zygote_and_guest(start, world):
    numbers = "HUP USR1 USR2 XCPU ALRM CHLD TERM QUIT"
    kernel = started(start, world, f"trap '' {numbers}; exec \"$@\"")
    pids = processes_of(kernel)
    wanted = {getattr(signal, f"SIG{name}") for name in numbers.split()}

    def ignored(pid):
        mask = int(status(pid)["SigIgn"], 16)
        return {n for n in signal.valid_signals() if mask >> (n - 1) & 1} & wanted

    assert signal.SIGXCPU in ignored(pids["host"])
    assert ignored(pids["zygote"]) == ignored(pids["guest"]) == set()


def test_a_lax_umask_makes_nothing_of_ours_readable(start, world):
    kernel = started(start, world, 'umask 000; exec "$@"')
    kernel.run("x = 1")
    kernel.end()
    (history,) = world.home.rglob("history.sqlite")
    assert [oct(p.stat().st_mode & 0o777) for p in (history, history.parent)] == ["0o600", "0o700"]


def test_a_relative_cache_folder_is_not_the_notebooks(start, world):
    kernel = start("safe", world=world, extra_env={"XDG_CACHE_HOME": "."})
    kernel.run("x = 1")
    kernel.end()
    assert list(world.work.rglob("*.sqlite")) == []
    assert list(world.home.rglob("history.sqlite"))


def test_temporary_files_in_the_notebooks_folder_are_the_guests_alone(start, world):
    kernel = start("safe", world=world, extra_env={"TMPDIR": str(world.work)})
    (scratch,) = world.work.glob("cellblock-*")
    assert scratch.stat().st_mode & 0o077 == 0
    kernel.end()
    assert list(world.work.glob("cellblock-*")) == []


HARMFUL = {
    "PYTHONHOME": "/nonexistent",
    "PYTHONINSPECT": "1",
    "PYTHONVERBOSE": "",
    "PYTHONDEVMODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONOPTIMIZE": "2",
    "PYTHONINTMAXSTRDIGITS": "0",
    "LC_ALL": "tr_TR.ISO-8859-9",
    "LANG": "\udcff",
    "TZ": "../../../etc/passwd",
    "COLUMNS": "-1",
    "TERM": "x" * 5_000,
    "USER": "\udcff",
    "JPY_SESSION_NAME": "../x",
    "JPY_PARENT_PID": "not a number",
    "JUPYTER_PLATFORM_DIRS": "x",
    "CELLBLOCK_POLICY": "unsafe",
    "CELLBLOCK_ALLOW_UNSAFE": "1",
}


def test_variables_that_mean_harm_change_nothing(start, world):
    kernel = start("safe", world=world, extra_env=HARMFUL)
    assert kernel.run("import gc")[0]["ename"] == "PolicyDenied"
    assert reading.result(kernel.run("assert 6 * 7 == 42\n'ä'")[1]) == "'ä'"
    assert "Traceback" not in kernel.stderr()


def refused(world, argv):
    """Run a kernel's command that has to fail; return what it says."""
    done = subprocess.run(
        argv, check=False, capture_output=True, text=True, timeout=30,
        cwd=world.work, env=world.environment(),
    )  # fmt: skip
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize(
    "change",
    [
        ["--allow-unsafe", "--policy", "unsafe"],
        ["--policy", "unsafe"],
        ["--allow-unsafe=yes"],
        ["--unsafe"],
        ["-f", "/dev/null"],
        ["notebook.ipynb"],
    ],
)
def test_an_argument_too_many_ends_the_kernel_with_its_usage(world, change):
    argv = [*argv_for("safe"), *change]
    said = refused(world, [part.format(connection_file=world.root / "none.json") for part in argv])
    assert said.startswith("cellblock: unknown argument")
    assert "usage:" in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"signature_scheme": "hmac-none"}, "unsupported hash type"),
        ({"signature_scheme": "none"}, "is not hmac with a digest"),
        ({"key": ["a"]}, "its key is not text"),
        ({"key": None}, "its key is not text"),
    ],
)
def test_a_key_that_nothing_can_be_checked_with_ends_the_kernel(world, change, said):
    file = world.root / "run" / "kernel-1.json"
    info = {"ip": "127.0.0.1", "transport": "tcp", "key": "a", "signature_scheme": "hmac-sha256"}
    file.write_text(json.dumps(info | change))
    words = refused(world, [part.format(connection_file=file) for part in argv_for("safe")])
    assert said in words
    assert str(file) in words
    assert "Traceback" not in words


READS = """
import pandas as pd
def read(path):
    try:
        return pd.read_csv(path, sep="\\x00", header=None, engine="python").to_string()
    except OSError as error:
        return type(error).__name__
"""


@pytest.mark.parametrize("moved", ["", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"])
def test_a_home_that_is_the_project_keeps_its_keys(start, world, moved):
    """JupyterHub starts kernels in the home folder, which preset data may read."""
    pytest.importorskip("pandas", reason="pandas is not installed")
    secret = "s3cr3t-in-a-file"
    names = [
        ".ssh/id_rsa",
        ".aws/credentials",
        ".jupyter/jupyter_server_config.json",
        ".config/jupyter/jupyter_server_config.json",
        ".local/share/jupyter/runtime/jpserver-1.json",
        ".local/share/jupyter/runtime/kernel-1.json",
        ".local/share/jupyter/kernels/other/kernel.json",
        ".local/share/jupyter/notebook_secret",
        ".ipython/profile_default/history.sqlite",
        ".cache/cellblock/history.sqlite",
    ]
    if moved:
        names.append("moved/runtime/kernel-2.json")
    for name in (*names, "notes.csv"):
        path = world.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(secret + "\n")
    told = {moved: str(world.work / "moved")} if moved else {}
    dropped = dict.fromkeys(("JUPYTER_PATH", "JUPYTER_RUNTIME_DIR"), "")
    env = {"HOME": str(world.work), **dropped, **told}
    kernel = start("data", world=world, extra_env=env)
    kernel.run(READS)
    got = {n: reading.result(kernel.run(f"read({str(world.work / n)!r})")[1]) for n in names}
    assert [name for name, text in got.items() if secret in (text or secret)] == []
    assert secret in reading.result(kernel.run(f"read({str(world.work / 'notes.csv')!r})")[1])


# --- kernelspecs --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cellblock", "cellblock-data"])
def test_a_kernelspecs_logo_holds_nothing_that_a_page_runs(name):
    drawing = (ROOT / "kernelspec" / name / "logo-svg.svg").read_text()
    assert not re.search(r"<script|javascript:|\son\w+=", drawing)


def test_installing_again_takes_out_what_somebody_put_beside_a_kernelspec(world):
    env = world.environment()
    code = "from cellblock.cli.main import main; main()"
    command = [sys.executable, "-P", "-c", code, "install", "--policy", "safe", "--user"]

    def install():
        subprocess.run(
            [*command, "--name", "mine"], check=True, capture_output=True, env=env, timeout=60
        )

    install()
    (folder,) = world.home.rglob("kernels/mine")
    (folder / "kernel.js").write_text("alert(1)")
    install()
    assert sorted(p.suffix for p in folder.iterdir() if p.suffix == ".js") == []


def test_no_cell_writes_into_a_kernelspec(door):
    folders = [Path(p) for p in KernelSpecManager().find_kernel_specs().values()]
    mine = door.prey.world.home / ".local/share/jupyter/kernels/mine"
    mine.mkdir(parents=True, exist_ok=True)
    door.prey.world.give(mine)
    for folder in (*folders, mine):
        # One in another user's home is not even there for nobody.
        missing = folder != mine or in_namespaces(door)
        elsewhere = {"FileNotFoundError"} if missing else set()
        for name in ("kernel.js", "kernel.json", "kernel.css"):
            code = f"open({str(folder / name)!r}, 'a').write('')"
            reply, _ = door.run(code)
            # OSError: what is mounted to be read is not written, whoever owns it.
            assert reply["ename"] in {"PermissionError", "OSError", *elsewhere}, reply
