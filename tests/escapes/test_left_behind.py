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

from support import processes, reading
from support.kernels import Kernel, World, argv_for, nobody_prefix, world_of_nobody

FOLDER = Path(__file__).parent / "os"
PRELUDE = (FOLDER / "prelude.py").read_text() + "\nimport sys\n"
PROGRAMS = {path.stem: path.read_text() for path in sorted((FOLDER / "left").glob("*.py"))}
USERS = ["same user", "nobody"] if os.geteuid() == 0 else ["same user"]
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

    def each(self, kernel, what):
        """Call ``what`` of every program; return what came of it."""
        return {name: self._one(kernel, text, what) for name, text in PROGRAMS.items()}

    def _one(self, kernel, text, what):
        code = (
            f"{PRELUDE}{text}\nw = types.SimpleNamespace(scratch=os.environ['HOME'], **{self.told})"
            f"\nprint('said', repr(bool({what}(w))))"
        )
        reply, published = kernel.run(code)
        said = reading.stream(published)
        return said.rpartition("said ")[2].strip() or f"{reply['ename']}: {reply['evalue']}"


@pytest.fixture(scope="module", params=USERS)
def found(request):
    """What was found by the next guest, the next zygote's guest and the next kernel."""
    prefix = nobody_prefix() if request.param == "nobody" else ()
    if prefix is None:
        pytest.skip("this interpreter is out of reach for uid 65534, also in a mount namespace")
    site = Site(world_of_nobody() if prefix else World(), prefix)
    try:
        return _search(site)
    finally:
        site.close()


def _search(site):
    before = {path: Path(path).read_text() for path in KEPT}
    first = site.kernel()
    said = {"left": site.each(first, "leave")}
    first.run("import os; os._exit(1)")
    said["next guest"] = site.each(first, "find")
    os.kill(first.zygote(), signal.SIGKILL)
    processes.gone(first.tree()[1:], 1)
    first.run("1")
    said["next zygote"] = site.each(first, "find")
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


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_left(name, found):
    """The other half of what follows: each program did something, or was refused for good."""
    assert found["left"][name] == "False"


SEARCHES = [
    (where, name)
    for where in ("next guest", "next zygote", "next kernel")
    for name in PROGRAMS
    # The scratch folder is the session's.
    if where == "next kernel" or "only_the_next_kernel" not in PROGRAMS[name]
]


@pytest.mark.parametrize(("where", "name"), SEARCHES)
def test_it_is_not_found(where, name, found):
    assert found[where][name] == "False"


def test_nothing_outlives_the_kernel(found):
    assert [found[key] for key in ("processes", "scratch", "outside", "kept")] == [[], [], [], []]
