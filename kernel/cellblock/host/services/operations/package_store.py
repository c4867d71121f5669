"""Packages on disk: each unpacked wheel in a folder of its own, named for what is in it.

Below the folder of one index and list (``policy.paths``)::

    lib/NAME-VERSION-HASH/   what guests import; nothing else here is theirs to read
    known/HASH.json          what a requirement came to
    failed/HASH.json         what could not be had, and why: not tried again until it is cleared
    making/                  what is being unpacked
    lock                     held by whoever changes anything (flock(2))

A folder in ``lib`` appears whole, by a rename, and never changes: kernels share it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cellblock.host.services.operations.urls import OperationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


_DIGITS: Final = 16
#: Seconds between looks whether another kernel has let go of the lock.
_LOOK: Final = 0.05
#: What says who unpacked a wheel, and not what is in it.
_NOT_CONTENT: Final = frozenset({"INSTALLER", "RECORD", "REQUESTED", "direct_url.json"})


@dataclass(frozen=True, slots=True)
class Package:
    """An unpacked wheel: ``folder`` is its name in ``lib``, ``needs`` are its requirements."""

    name: str
    version: str
    folder: str
    needs: tuple[str, ...] = ()


class PackageStore:
    """One index's packages. Whatever it is asked, it may raise OSError."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self.lib = self._folder / "lib"

    def prepare(self, about: dict[str, Any]) -> None:
        """Have the folders that there must be, and say what they are for."""
        for name in ("lib", "known", "failed", "making"):
            (self._folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write(self._folder / "about.json", about)

    @contextlib.contextmanager
    def locked(self, deadline: float) -> Iterator[None]:
        """Be the only one who changes anything. Raises OperationError at ``deadline``."""
        with (self._folder / "lock").open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError as exc:
                    if exc.errno not in {errno.EAGAIN, errno.EACCES}:
                        raise
                if time.monotonic() > deadline:
                    raise OperationError("TimeoutError", "another kernel installs for too long")
                time.sleep(_LOOK)
            yield

    @contextlib.contextmanager
    def making(self) -> Iterator[Path]:
        """Lend a folder to unpack into; what is left of it is removed."""
        made = Path(tempfile.mkdtemp(dir=self._folder / "making"))
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)

    # --- what is there ------------------------------------------------------------------------

    def known(self, requirement: str) -> Package | None:
        """Return what a requirement came to, if that is still here."""
        found = self._read("known", requirement)
        if found is None or not (self.lib / found["folder"]).is_dir():
            return None
        return Package(found["name"], found["version"], found["folder"], tuple(found["needs"]))

    def keep(self, requirement: str, unpacked: Path, package: Package) -> Package:
        """Take what was unpacked in, under the name of its content."""
        folder = f"{package.name}-{package.version}-{content(unpacked)}"
        with contextlib.suppress(OSError):  # another has brought the same; or it shows below
            unpacked.rename(self.lib / folder)
        kept = Package(package.name, package.version, folder, package.needs)
        if not (self.lib / folder).is_dir():
            raise OperationError("OSError", f"{package.name} can't be kept on this disk")
        self._write(self._place("known", requirement), {"requirement": requirement} | asdict(kept))
        return kept

    # --- what could not be had ----------------------------------------------------------------

    def failure(self, requirement: str) -> str:
        """Return why a requirement could not be had before; nothing if it was not tried."""
        found = self._read("failed", requirement)
        return str(found["message"]) if found is not None else ""

    def fail(self, requirement: str, message: str) -> None:
        """Remember that a requirement can't be had."""
        told = {"requirement": requirement, "message": message, "time": time.time()}
        self._write(self._place("failed", requirement), told)

    def failures(self) -> list[dict[str, Any]]:
        """Return all that could not be had: requirement, message, time."""
        return list(self._all("failed"))

    def packages(self) -> list[dict[str, Any]]:
        """Return what requirements came to: requirement, name, version, folder."""
        return list(self._all("known"))

    def about(self) -> dict[str, Any]:
        """Return what the folder is for; nothing of one that was never used."""
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads((self._folder / "about.json").read_text("utf-8"))
            return found
        return {}

    def clear(self, matches: Callable[[str], bool], *, installed: bool) -> int:
        """Forget failures of requirements that match, with ``installed`` packages too.

        Returns how many were forgotten.
        """
        with self.locked(time.monotonic() + 10.0):
            gone = 0
            for kind in ("failed", "known") if installed else ("failed",):
                for told in self._all(kind):
                    if matches(told["requirement"]):
                        self._place(kind, told["requirement"]).unlink(missing_ok=True)
                        gone += 1
            if installed:
                self._sweep({told["folder"] for told in self._all("known")})
            return gone

    def _sweep(self, kept: set[str]) -> None:
        """Remove what no requirement comes to any more."""
        for entry in self.lib.iterdir():
            if entry.name not in kept:
                shutil.rmtree(entry, ignore_errors=True)

    # --- files --------------------------------------------------------------------------------

    def _place(self, kind: str, requirement: str) -> Path:
        digest = hashlib.sha256(requirement.encode()).hexdigest()[:_DIGITS]
        return self._folder / kind / f"{digest}.json"

    def _read(self, kind: str, requirement: str) -> dict[str, Any] | None:
        return next((one for one in self._told([self._place(kind, requirement)])), None)

    def _all(self, kind: str) -> Iterator[dict[str, Any]]:
        folder = self._folder / kind
        return self._told(sorted(folder.glob("*.json")) if folder.is_dir() else [])

    @staticmethod
    def _told(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
        for file in files:
            with contextlib.suppress(OSError, ValueError):
                yield json.loads(file.read_text("utf-8"))

    @staticmethod
    def _write(file: Path, told: dict[str, Any]) -> None:
        beside = file.with_name(f".{file.name}.{os.getpid()}")
        beside.write_text(json.dumps(told), "utf-8")
        beside.replace(file)


def content(folder: Path) -> str:
    """Return a hash of what is beneath a folder, whoever put it there. Raises OperationError."""
    digest = hashlib.sha256()
    for path in _files(folder):
        name = str(path.relative_to(folder))
        if path.name in _NOT_CONTENT and path.parent.name.endswith(".dist-info"):
            continue
        with path.open("rb") as file:
            inner = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{name}\0{inner}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:_DIGITS]


def size(folder: Path) -> int:
    """Return the bytes of all files beneath a folder. Raises OperationError."""
    return sum(path.stat().st_size for path in _files(folder))


def _files(folder: Path) -> list[Path]:
    """Return all files; a wheel holds nothing else. Raises OperationError."""
    found = []
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            found.append(path)
        elif not stat.S_ISDIR(mode):
            raise OperationError("InstallError", "it holds something that is no file")
    return found
