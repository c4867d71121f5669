"""P2, P12: sandboxes of a pool that may start programs, or stage files, see nothing of one another.

Behind bubblewrap those without a project share a zygote, and each has mounts of its own; with one
each has a zygote, and so a pid namespace. Under Landlock alone each has what a zygote of its own
gives it, or does without. What is tried here has its positive control in the sandbox that it is
tried on.
"""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from cellblock import Policy, Sandbox, SandboxPool
from cellblock.policy.folders import changes_folder
from cellblock.wire.messages import PAUSE
from support import machines, processes

pytestmark = pytest.mark.usefixtures("home")
BACKENDS = ("landlock", "bubblewrap")
behind_bubblewrap = pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
WORD = "a-word-of-one-sandbox"

#: What the one has: a program, a worker, memory, a file.
HAS = f"""
import multiprocessing, os, subprocess, sys, time
word = "{WORD}"
program = subprocess.Popen([sys.executable, "-c", "input()", word], stdin=subprocess.PIPE)
worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
worker.start()
open("secret.txt", "w").write(word)
if os.path.isdir("/dev/shm"):
    try:
        open("/dev/shm/" + word, "w").write(word)
    except OSError:
        pass
import json
json.dumps([os.getcwd(), os.environ["HOME"], os.getpid(), program.pid, worker.pid])
"""

#: What the other finds, by each way.
LOOKS = """
import ctypes, json, os, signal
folder, home, *pids = {given}
found = []
def tried(name, attempt):
    try:
        found.append([name, repr(attempt())])
    except (OSError, AttributeError):
        pass
for name in ("cmdline", "environ", "status", "maps", "mem", "stat", "root", "cwd", "fd", "ns/mnt"):
    for pid in (*pids, 1) if pids else ():
        tried(f"open /proc/PID/{{name}}", lambda: os.open(f"/proc/{{pid}}/{{name}}", os.O_RDONLY))
        if {hides_names}:
            tried(f"stat /proc/PID/{{name}}", lambda: os.lstat(f"/proc/{{pid}}/{{name}}"))
for pid in pids:
    tried("kill", lambda: os.kill(pid, signal.SIGKILL))
    tried("signal 0", lambda: os.kill(pid, 0))
    tried("pidfd", lambda: os.pidfd_open(pid))
    tried("priority", lambda: os.setpriority(os.PRIO_PROCESS, pid, 5))
tried("secret", lambda: open(home + "/secret.txt").read())
tried("list", lambda: os.listdir(home))
tried("list above", lambda: os.listdir(os.path.dirname(home)))
tried("make", lambda: open(home + "/mine", "w"))
tried("mode", lambda: os.chmod(home, 0))
tried("times", lambda: os.utime(home))
tried("times of a device", lambda: os.utime("/dev/zero", (1, 1)))
if {hides_names}:
    tried("name", lambda: os.lstat(home))
tried("link", lambda: os.link(home + "/secret.txt", "theirs"))
if os.path.isdir("/dev/shm"):
    for name in ("a-word-of-one-sandbox", "."):
        tried("memory", lambda: os.unlink("/dev/shm/" + name))
libc = ctypes.CDLL(None, use_errno=True)
def called(function, *args):
    if getattr(libc, function)(*args) != 0:
        raise OSError(ctypes.get_errno(), function)
    return 0
tried("unshare", lambda: called("unshare", 0x10000000))
tried("unshare mounts", lambda: called("unshare", 0x20000))
tried("setns", lambda: called("setns", os.open("/proc/self/ns/mnt", os.O_RDONLY), 0))
tried("mount", lambda: called("mount", b"none", b"/tmp", b"tmpfs", 0, 0))
tried("umount", lambda: called("umount2", b"/proc", 2))
json.dumps(found).replace("'", "").replace("\\\\", "")
"""


def said(sandbox, code):
    result = sandbox.execute(code)
    assert result.success, result.to_string()
    return json.loads(result.result.strip("'"))


def wrapped():
    """Return the processes in front of zygotes."""
    return [p for p in processes.tree(os.getpid()) if processes.name(p) == "bwrap"]


@pytest.fixture(params=BACKENDS)
def backend(request, monkeypatch):
    """A backend, on a machine that has it."""
    if request.param == "bubblewrap" and (why := machines.no_bubblewrap()):
        pytest.skip(why)
    monkeypatch.setenv("PATH", machines.path(request.param))
    return request.param


@pytest.fixture
def project(tmp_path):
    (tmp_path / "data.csv").write_text("as it was")
    (tmp_path / ".env").write_text("PASSWORD=1")
    return tmp_path


@pytest.fixture(params=["no project", "project"])
def given(request, project):
    """What a pool is given: no project, so that a zygote is shared, or one."""
    return {"project": project} if request.param == "project" else {}


@pytest.mark.quick
def test_one_finds_nothing_of_another_by_any_way(backend, given):
    policy = Policy.preset("data", backend=backend)
    with SandboxPool(policy, **given) as pool, pool.sandbox() as a, pool.sandbox() as b:
        has = said(a, HAS)
        if given and backend == "bubblewrap":
            has = has[:2]  # in a pid namespace of its own these numbers are processes of its own
        looks = LOOKS.format(given=has, hides_names=backend == "bubblewrap")
        assert said(b, looks) == []
        # They are still there, and whoever has them sees them.
        assert a.execute("program.poll() is None and worker.is_alive()").result == "True"
        assert a.execute("open('secret.txt').read() == word").result == "True"


#: Sets times and owners to what they are, which harms nothing where it succeeds. It returns for
#: which paths it did.
SETS = """
import os, sys
def times(path):
    now = os.stat(path)
    os.utime(path, ns=(now.st_atime_ns, now.st_mtime_ns))
def owner(path):
    now = os.stat(path)
    os.chown(path, now.st_uid, now.st_gid)
acts = [times, owner]
places = ["/", "/proc/self/comm", "/proc/meminfo", "/dev/null", "/usr", sys.executable, "..", "../..", *{given}]
done = []
for place in places:
    for act in acts:
        try:
            act(place)
        except OSError:
            continue
        done.append(place)
json.dumps(done)
"""
#: Programs that fail where they can set none: of an archive, a checkout, a date; and one that
#: cells have made.
PROGRAMS = """
import json, subprocess
subprocess.run(
    "mkdir f && tar cf f.tar f && tar xf f.tar && cp -a f g && touch -d @978307200 g && chmod 700 g"
    " && git init -q r && stat -c '%a %Y' g && cp /bin/echo made && ./made run",
    shell=True, check=True, capture_output=True, text=True,
).stdout
"""


def set_modes_of_their_own_alone(sandbox, *others):
    """Programs of the sandbox set modes and times of its own files, and of nothing else."""
    result = sandbox.execute(PROGRAMS)
    assert result.success, result.to_string()
    assert result.result == repr("700 978307200\nrun\n")
    assert said(sandbox, "import json\n" + SETS.format(given=[*others])) == []


@behind_bubblewrap
@pytest.mark.quick
def test_programs_set_modes_and_times_of_their_own_files_and_of_nothing_else(backend):
    policy = Policy.preset("data", backend=backend)
    with SandboxPool(policy) as pool, pool.sandbox() as a, pool.sandbox() as b:
        there = said(a, "import json, os\nopen('f', 'w').close(); json.dumps(os.path.abspath('f'))")
        set_modes_of_their_own_alone(b, there, str(Path(there).parent))
        assert a.execute("oct(os.stat('f').st_mode)[-3:]").result == "'644'"
        # Nor does a fork, whose files lie among those of its parent.
        with b.fork()[0] as fork:
            assert said(fork, "import json\n" + SETS.format(given=["../g", "g"])) == []
        assert b.execute("%policy narrow filesystem_write_roots=[]").success
        assert said(b, "import json\n" + SETS.format(given=["f", "g"])) == []
    with Sandbox(policy) as alone:
        set_modes_of_their_own_alone(alone)
        assert alone.execute("%policy narrow filesystem_write_roots=[]").success
        assert said(alone, "import json\n" + SETS.format(given=["f", "g"])) == []


@behind_bubblewrap
def test_behind_bubblewrap_all_have_one_zygote_without_a_project_and_one_each_with_it(
    backend, given
):
    policy = Policy.preset("data", backend=backend)
    with SandboxPool(policy, **given) as pool, pool.sandbox() as a, pool.sandbox() as b:
        assert a.execute("1").success
        assert b.execute("1").success
        assert len(wrapped()) == (2 if given else 1)


@behind_bubblewrap
def test_each_stages_for_itself_and_secrets_that_came_later_are_hidden(backend, project):
    policy = Policy.preset("data", backend=backend)
    with SandboxPool(policy, project=project) as pool, pool.sandbox() as a:
        assert a.execute("open('data.csv', 'w').write('of a')").success
        (project / "sub").mkdir()
        (project / "sub" / ".env").write_text("PASSWORD=2")
        (project / "new.csv").write_text("new")
        with pool.sandbox() as b:
            assert b.execute("open('data.csv').read()").result == "'as it was'"
            assert b.execute("open('new.csv').read()").result == "'new'"
            for name in (".env", "sub/.env"):
                assert b.execute(f"open({name!r}).read()").error.type == "FileNotFoundError"
            assert b.execute("open('data.csv', 'w').write('of b')").success
            assert b.execute("import os; os.chmod('data.csv', 0o600)").success
            assert [(c.path, c.kind) for c in b.changes()] == [("data.csv", "changed")]
            assert (b.read("data.csv"), a.read("data.csv")) == (b"of b", b"of a")
        assert a.execute("open('data.csv').read()").result == "'of a'"
        assert (project / "data.csv").read_text() == "as it was"
        assert [c.path for c in a.keep()] == ["data.csv"]
    assert (project / "data.csv").read_text() == "of a"


@behind_bubblewrap
def test_a_killed_guest_has_its_files_and_an_empty_memory_and_the_other_keeps_its_own(
    backend, given
):
    policy = Policy.preset("data", backend=backend)
    with SandboxPool(policy, **given) as pool, pool.sandbox() as a, pool.sandbox() as b:
        for one in (a, b):
            begun = "import os; open('/dev/shm/mine', 'w').write('x'); open('f', 'w').write('x')"
            assert one.execute(begun).success
        assert a.execute("os._exit(1)").stop.state == "restored"
        assert a.execute("os.listdir('/dev/shm'), os.path.exists('f')").result == "([], True)"
        assert b.execute("import os; os.listdir('/dev/shm')").result == "['mine']"


@behind_bubblewrap
def test_a_new_guest_of_a_sandbox_has_the_mounts_of_the_one_before_it(backend, given):
    policy = Policy.preset("data", backend=backend, snapshots="off")
    with SandboxPool(policy, **given) as pool, pool.sandbox() as a, pool.sandbox() as b:
        assert a.execute("open('f', 'w').write('x'); x = 1").success
        assert a.execute("import os; os._exit(1)").stop.state == "gone"
        assert a.execute("open('f').read()").result == "'x'"
        assert b.execute("import os; os.path.exists('f')").result == "False"


@behind_bubblewrap
def test_a_lost_zygote_costs_variables_and_no_file(backend):
    policy = Policy.preset("data", backend=backend)
    with SandboxPool(policy) as pool, pool.sandbox() as a, pool.sandbox() as b:
        assert a.execute("open('f', 'w').write('x')").success
        (lost,) = wrapped()
        os.kill(lost, signal.SIGKILL)
        processes.until(lambda: wrapped() and wrapped() != [lost])
        assert a.execute("open('f').read()").result == "'x'"
        assert b.execute("import os; os.path.exists('f')").result == "False"


@behind_bubblewrap
def test_one_that_narrows_its_policy_keeps_its_mounts_and_narrows_no_other(backend, given, project):
    policy = Policy.preset("data", backend=backend)
    if not given:
        roots = (*policy.filesystem_read_roots, str(project))
        policy = policy.replace(filesystem_read_roots=roots)
    with SandboxPool(policy, **given) as pool, pool.sandbox() as a, pool.sandbox() as b:
        assert a.execute("x = 1; open('f', 'w').write('staged')").success
        data = str(project / "data.csv")
        denied = f"%policy narrow add.read_deny_paths={json.dumps([data])}"
        assert a.execute(denied).success, a.execute(denied).to_string()
        assert a.execute("x, open('f').read()").result == "(1, 'staged')"
        assert a.execute(f"open({data!r}).read()").error.type in {"PermissionError", "OSError"}
        assert a.execute("import os; os.listdir('/dev/shm')").result == "[]"
        assert b.execute(f"open({data!r}).read()").result == "'as it was'"


@behind_bubblewrap
def test_what_the_user_changes_below_is_seen_by_the_next_cell(backend, project):
    policy = Policy.preset("data", backend=backend)
    with SandboxPool(policy, project=project) as pool, pool.sandbox() as a:
        assert a.execute("import os, time; os.path.exists('later')").result == "False"
        (project / "later").write_text("here")
        time.sleep(2 * PAUSE)  # what a user needs to change files; sooner nothing is looked up anew
        assert a.execute("os.path.exists('later')").result == "True"


@behind_bubblewrap
def test_a_zygote_sees_nothing_that_was_staged(backend, project):
    policy = Policy.preset("data", backend=backend)
    with SandboxPool(policy, project=project) as pool, pool.sandbox() as a:
        assert a.execute("open('f', 'w').write('x')").success
        assert [change.path for change in a.changes()] == ["f"]
        (front,) = wrapped()
        zygote, *_ = (p for p in processes.tree(front) if processes.name(p) == "cb-zygote")
        seen = Path(f"/proc/{zygote}/root{changes_folder()}")
        assert any(Path(changes_folder()).iterdir())
        assert not any(seen.iterdir())
