"""What a guest leaves for the next one, and a kernel for the next: files it may write, no more.

Each file in `os/left/` has ``leave(w)``, run in one guest, and ``find(w)``, run in the next of
the same kernel, after its zygote was killed too, and in the next kernel of the same user. A
snapshot is to have what its guest had; without snapshots, the next guest is a fresh one.
"""

import os
import re
import signal
from pathlib import Path

import pytest

from support import machines, processes, reading
from support.kernels import Kernel, argv_for, world_and_prefix

FOLDER = Path(__file__).parent / "os"
PRELUDE = (FOLDER / "prelude.py").read_text() + "\nimport sys\n"
PROGRAMS = {path.stem: path.read_text() for path in sorted((FOLDER / "left").glob("*.py"))}
#: Without those that leave it in the scratch folder, which is the session's.
OF_A_SESSION = [name for name, text in PROGRAMS.items() if "only_the_next_kernel" not in text]
KEPT = ("/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg", "/proc/keys")


class Site:
    """One user's folders, and what each guest found there."""

    def __init__(self, world, prefix):
        self.world, self.prefix = world, prefix
        self._kernels = []
        for name in ("writable", "outside"):
            (world.root / name).mkdir()
            world.give(world.root / name)
        self.policy = world.policy(
            "extends = 'unsafe'\nsnapshots = 'off'\n"
            f"filesystem_write_roots = ['{{scratch}}', '{world.root}/writable']\n"
        )
        self.told = {name: str(world.root / name) for name in ("writable", "outside")}

    def kernel(self):
        argv = argv_for(self.policy, "--allow-unsafe")
        self._kernels.append(Kernel(argv, world=self.world, prefix=self.prefix))
        return self._kernels[-1].wait_ready()

    def close(self):
        for kernel in self._kernels:
            kernel.close()
        self.world.close()

    def each(self, kernel, what, names=PROGRAMS):
        """Call ``what`` of every program; return what came of it."""
        return {name: self._one(kernel, PROGRAMS[name], what) for name in names}

    def _one(self, kernel, text, what):
        code = (
            f"{PRELUDE}{text}\nw = types.SimpleNamespace(scratch=os.environ['HOME'], **{self.told})"
            f"\nprint('said', repr(bool({what}(w))))"
        )
        reply, published = kernel.run(code)
        said = reading.stream(published)
        return said.rpartition("said ")[2].strip() or f"{reply['ename']}: {reply['evalue']}"


@pytest.fixture(params=machines.users())
def site(request):
    made = Site(*world_and_prefix(request.param))
    yield made
    made.close()


def search(site):
    """Return what was left, and what the next guest, the next zygote's and the next kernel found."""
    before = {path: Path(path).read_text() for path in KEPT}
    first = site.kernel()
    said = {"left": site.each(first, "leave")}
    first.run("import os; os._exit(1)")
    said["next guest"] = site.each(first, "find", OF_A_SESSION)
    os.kill(first.zygote(), signal.SIGKILL)
    processes.gone(first.tree()[1:], 1)
    first.run("1")
    said["next zygote"] = site.each(first, "find", OF_A_SESSION)
    said["processes"] = first.end()
    root = site.world.root
    said["scratch"] = [path.name for path in (root / "tmp").iterdir()]
    said["outside"] = [path.name for path in (root / "outside").iterdir()]
    said["kept"] = [path for path, was in before.items() if _new(Path(path).read_text(), was)]
    said["next kernel"] = site.each(site.kernel(), "find")
    return said


def _new(now, was):
    """Return lines of ours; others' come and go."""
    return [line for line in set(now.splitlines()) - set(was.splitlines()) if _ours(line)]


def _ours(line):
    return re.search(r"left|\b7927\b", line)  # 0x1EF7


def test_what_a_guest_leaves_is_not_found_and_nothing_outlives_the_kernel(site):
    found = search(site)
    # Each program did something, or was refused for good.
    assert found["left"] == dict.fromkeys(PROGRAMS, "False")
    assert found["next guest"] == found["next zygote"] == dict.fromkeys(OF_A_SESSION, "False")
    assert found["next kernel"] == dict.fromkeys(PROGRAMS, "False")
    assert [found[key] for key in ("processes", "scratch", "outside", "kept")] == [[], [], [], []]
