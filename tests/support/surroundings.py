"""Files, processes and listeners around an attacking guest, and whether any was touched."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cellblock.host.probes import was_called
from support import ports
from support.users import NOBODY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.kernels import World

#: Lists of objects that the OS kernel keeps when their process has ended.
KEPT = ("/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg", "/proc/swaps")
LISTED = ("/dev/shm", "/dev/mqueue")


class Surroundings:
    """The surroundings of attacks that run one after another in one user's world."""

    def __init__(self, place: World, as_nobody: bool) -> None:
        self.place = place
        #: The secret: in all files outside, and in another process's environment and arguments.
        self.token = secrets.token_hex(12)
        self.uid = NOBODY if as_nobody else os.geteuid()
        self._count = 0
        self._sentinel: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        """End the sentinel."""
        if self._sentinel is not None:
            os.killpg(self._sentinel.pid, signal.SIGKILL)
            self._sentinel.wait()

    def sentinel(self) -> subprocess.Popen[bytes]:
        """Return an unrelated process of the user's; a new one if the last was ended."""
        if self._sentinel is None or self._sentinel.poll() is not None:
            self._sentinel = self._start()
        return self._sentinel

    def _start(self) -> subprocess.Popen[bytes]:
        user = {} if self.uid == os.geteuid() else {"user": NOBODY, "group": NOBODY}
        extra = {"extra_groups": []} if user else {}
        return subprocess.Popen(
            ["/bin/sh", "-c", f"sleep infinity; : {self.token}"],
            env={"TOKEN": self.token, "PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            **user,
            **extra,
        )

    @contextlib.contextmanager
    def watched(self) -> Iterator[Watched]:
        """Yield fresh files, process and listeners, while no other test attacks."""
        self._count += 1
        with _alone():
            made = Watched(self, str(self._count))
            try:
                yield made
            finally:
                made.close()


class Watched:
    """The surroundings of one attack. ``world`` has what the attack is told of them."""

    def __init__(self, around: Surroundings, number: str) -> None:
        self._around = around
        self.token = around.token
        folders = {
            name: around.place.root / name / number for name in ("readable", "writable", "outside")
        }
        self._folders = list(folders.values())
        self._sentinel = around.sentinel()
        self._listeners = dict(self._listen(folders["outside"]))
        for folder in self._folders:
            self._fill(folder)
        self.world = {name: str(folder) for name, folder in folders.items()} | {
            "secret": str(folders["outside"] / "file"),
            "sentinel": self._sentinel.pid,
            "tcp": self._listeners["tcp"].getsockname()[1],
            "tcp6": self._listeners["tcp6"].getsockname()[1],
            "udp": self._listeners["udp"].getsockname()[1],
            "stream": str(folders["outside"] / "stream"),
            "datagram": str(folders["outside"] / "datagram"),
            "abstract": f"cellblock-{around.place.root.name}-{number}",
            "uid": around.uid,
            "host": around.place.root.name,
        }
        self._before = self._state()

    def nothing_happened(self) -> None:
        """Raise unless everything but the writable folder is unchanged, and nothing connected."""
        now = self._state()
        changed = {key: (was, now[key]) for key, was in self._before.items() if now[key] != was}
        if changed:
            raise AssertionError(f"touched: {changed}")
        for kind, listener in self._listeners.items():
            if was_called(listener):
                raise AssertionError(f"somebody called at {kind}")

    def close(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        for folder in self._folders:
            shutil.rmtree(folder)

    def _listen(self, outside: Path) -> Iterator[tuple[str, socket.socket]]:
        outside.mkdir()
        yield "tcp", ports.aside()
        yield "tcp6", ports.aside(host="::1")
        yield "udp", ports.aside(socket.SOCK_DGRAM)
        yield "stream", _bound(socket.SOCK_STREAM, str(outside / "stream"))
        yield "datagram", _bound(socket.SOCK_DGRAM, str(outside / "datagram"))
        name = f"\0cellblock-{self._around.place.root.name}-{outside.name}"
        yield "abstract", _bound(socket.SOCK_STREAM, name)

    def _fill(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "file").write_text(
            f"{self.token}\n" if folder.parent.name == "outside" else "x\n"
        )
        (folder / "folder").mkdir()
        (folder / "folder" / self.token).write_text("x")
        (folder / "program").write_bytes(Path("/bin/true").resolve().read_bytes())
        (folder / "program").chmod(0o755)
        (folder / "link").symlink_to(folder.parents[1] / "outside" / folder.name / "file")
        for path in (folder, *folder.rglob("*")):
            os.chown(path, self._around.uid, self._around.uid, follow_symlinks=False)
        for path in (folder / "stream", folder / "datagram"):
            if path.exists():
                path.chmod(0o777)

    def _is_ours(self, mount: str) -> bool:
        """Return whether an attack may have made a mount; other tests' engines make mounts too."""
        place = mount.split(" ")[1]
        temporary = place.startswith(tempfile.gettempdir() + "/")
        return not temporary or self._around.place.root.name in place

    def _state(self) -> dict[str, object]:
        around = self._around
        files = [
            f for folder in self._folders if folder.parent.name != "writable" for f in _tree(folder)
        ]
        proc = Path(f"/proc/{self._sentinel.pid}")
        return {
            "files": {str(f): _looks(f) for f in files},
            "roots": sorted(path.name for path in around.place.root.iterdir()),
            "process": _runs(proc),
            "kept": {path: _text(path) for path in KEPT},
            "listed": {f: [n for n in _names(f) if around.place.root.name in n] for f in LISTED},
            "mounts": [
                line for line in _text("/proc/self/mounts").splitlines() if self._is_ours(line)
            ],
            "host": socket.gethostname(),
        }


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Exclude other processes of this suite: some of the state belongs to the whole machine."""
    name = Path(tempfile.gettempdir(), f"cellblock-attacks-{os.geteuid()}.lock")
    with name.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _bound(kind: int, address: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, kind)
    made.bind(address)
    if kind == socket.SOCK_STREAM:
        made.listen()
    made.setblocking(False)
    return made


def _tree(folder: Path) -> Iterator[Path]:
    yield folder
    yield from folder.rglob("*")


def _looks(path: Path) -> tuple[object, ...]:
    s = path.lstat()
    content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
    attributes = tuple(os.listxattr(path, follow_symlinks=False))
    return (
        s.st_mode,
        s.st_uid,
        s.st_gid,
        s.st_nlink,
        s.st_size,
        s.st_mtime_ns,
        attributes,
        content,
    )


def _runs(proc: Path) -> tuple[object, ...]:
    fields = _text(proc / "stat").rpartition(")")[2].split()
    # Whether it runs; parent, group, session; nice; policy.
    stat = [fields[0] in "RSD", *(fields[n] for n in (1, 2, 3, 16, 38))] if fields else ["gone"]
    pid = int(proc.name)
    return (*stat, _text(proc / "limits"), _text(proc / "oom_score_adj"), os.sched_getaffinity(pid))


def _text(path: object) -> str:
    try:
        return Path(str(path)).read_text()
    except OSError:
        return ""


def _names(path: str) -> list[str]:
    try:
        return sorted(entry.name for entry in Path(path).iterdir())
    except OSError:
        return []
