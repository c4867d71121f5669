"""``ops.install``, and the policy's ``packages``: installs wheels and the packages that they need.

``Installer`` resolves requirements itself, one package at a time, since an installer that resolved
them would fetch, and build, dependencies that a wheel names by an address. Each package must be in
the policy's list. All requirements of a package must hold at once; no older version of a package is
tried to make another fit. ``fetch_wheel`` has an installer unpack one wheel.

``PackageStore`` keeps each unpacked wheel in a folder named for its content, below the folder of
one index and list (``policy.paths``)::

    lib/NAME-VERSION-HASH/   a wheel that guests import; they can read nothing else here
    known/HASH.json          the package that a requirement was resolved to
    failed/HASH.json         a requirement that failed, and why: not tried again until cleared
    making/                  wheels that are being unpacked
    lock                     held by whoever changes anything (flock(2))

A folder in ``lib`` appears whole, by a rename, and never changes, since kernels share it.
"""

from __future__ import annotations

import contextlib
import email
import errno
import fcntl
import hashlib
import importlib.metadata
import json
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import is_normalized_name
from packaging.version import VERSION_PATTERN

from cellblock.host.services.operations.catalog import TRANSIENT, not_granted
from cellblock.host.services.operations.grants import OperationError
from cellblock.host.services.tools.calls import report_progress
from cellblock.host.services.tools.path_free import without_paths
from cellblock.policy import operations
from cellblock.policy.operations import canonical_package

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cellblock.policy.operations import Install


#: The most packages that one call may install, with all that they need.
_MAX_PACKAGES: Final = 200
_UNTIL_CLEARED: Final = "it is not tried again before `cellblock packages clear`"
_HASH_DIGITS: Final = 16
#: Files of a wheel's metadata that depend on the installer, not on the wheel.
_NOT_CONTENT: Final = frozenset({"INSTALLER", "RECORD", "REQUESTED", "direct_url.json"})
#: The environment variables that installers get: places, trusted certificates, proxies.
_ENVIRONMENT: Final = (
    "HOME", "HTTPS_PROXY", "HTTP_PROXY", "LANG", "LD_LIBRARY_PATH", "NO_PROXY", "PATH",
    "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR", "https_proxy", "http_proxy",
    "no_proxy",
)  # fmt: skip
#: Seconds between polls of a process or a lock.
_POLL_SECONDS: Final = 0.05
_MAX_MESSAGE: Final = 300
_VERSION: Final = re.compile(VERSION_PATTERN, re.VERBOSE | re.IGNORECASE)
#: Texts of pip, then of uv, when it gave up on a connection. pip's exit status is the same as for
#: a package that doesn't exist.
_UNREACHABLE: Final = (
    "Retry(total=0,", "Max retries exceeded", "error sending request", "tcp connect error",
    "operation timed out",
)  # fmt: skip
#: Texts of uv, then of pip, for answers of an index that may change: 5xx, 401, 407, 408, 429. For
#: some of them uv also says that there is no such package, and pip only has them in its log.
_REFUSED_NOW: Final = re.compile(
    r"HTTP status server error \(|HTTP status client error \(4(?:01|07|08|29) |\(401 Unauthorized\)"
    r"|too many 5\d\d error responses|: 5\d\d Server Error|[: ]4(?:01|07|08|29) Client Error"
)
#: Errors of this machine, in the words of both: input and output, memory, descriptors, a full or
#: read-only disk, a quota (errno(3)). A file that is too large is the package's fault.
_LOCAL_ERRNO: Final = re.compile(r"(?:\[Errno |\(os error )(5|12|23|24|28|30|122)[\])]")
#: Bytes of pip's log that are read. Failures of the index come early in it.
_MAX_LOG: Final = 2**20


@dataclass(frozen=True, slots=True)
class Package:
    """A package from a wheel or of the kernel's interpreter, and its requirements (``needs``).

    ``folder`` is the name of the wheel's folder in ``lib``. It is empty for a package of the
    interpreter, and for a wheel that has not been moved there yet.
    """

    name: str
    version: str
    folder: str
    needs: tuple[str, ...] = ()


class Installer:
    """The installer of packages that the policy's section ``table`` grants, into ``folder``.

    ``fetch`` unpacks one wheel.
    """

    def __init__(
        self, table: Install, folder: str, fetch: Callable[..., Package] | None = None
    ) -> None:
        self._table = table
        self._store = PackageStore(folder)
        self._fetch = fetch or fetch_wheel
        self._allowed = _versions(table.allow)

    def install(self, *packages: str) -> dict[str, Any]:
        """Install packages, as ``catalog.INSTALL`` describes.

        Return names with versions for the cell, and the folders that guests import from.
        """
        requirements = [_parse(text) for text in packages]
        deadline = time.monotonic() + self._table.timeout
        try:
            self._store.prepare({"index": self._table.index, "allow": list(self._table.allow)})
            with self._store.locked(deadline):
                resolved = self._resolve(requirements, deadline)
        except OSError as exc:
            message = f"the folder of packages can't be used: {exc.strerror}"
            raise OperationError("OSError", message) from None
        installed = sorted(f"{package.name} {package.version}" for package in resolved)
        report_progress(f"ops.install: {', '.join(installed) or 'nothing to install'}")
        paths = [str(self._store.lib / package.folder) for package in resolved if package.folder]
        return {"installed": installed, "paths": paths}

    def _resolve(self, requirements: list[Requirement], deadline: float) -> list[Package]:
        """Return these packages and all that they need, after fetching those that are not here.

        A package is fetched again if a later requirement excludes its version. Raises
        OperationError if a package can't be had or isn't granted.
        """
        specifiers: dict[str, SpecifierSet] = {}
        resolved: dict[str, Package] = {}
        #: The name, version and extra of each package whose needs are in the queue, or were.
        extras_seen: set[tuple[str, str, str]] = set()
        #: Requirements, and the package that needs each.
        queue = deque((requirement, "") for requirement in requirements)
        while queue:
            requirement, needed_by = queue.popleft()
            name = canonical_package(requirement.name)
            specifiers[name] = specifiers.get(name, SpecifierSet()) & requirement.specifier
            before = resolved.get(name)
            if before is None or not specifiers[name].contains(before.version, prereleases=True):
                resolved[name] = self._package(name, specifiers[name], needed_by, deadline)
            package = resolved[name]
            for extra in ("", *sorted(requirement.extras)):
                if (name, package.version, extra) not in extras_seen:
                    extras_seen.add((name, package.version, extra))
                    queue += [(need, name) for need in _requirements_of(package, extra)]
            if len(resolved) > _MAX_PACKAGES:
                raise OperationError(
                    "InstallError", f"it comes to more than {_MAX_PACKAGES} packages"
                )
        return list(resolved.values())

    def _package(
        self, name: str, specifier: SpecifierSet, needed_by: str, deadline: float
    ) -> Package:
        """Return a package from the interpreter or the store, or fetch it. Raises OperationError.

        A failure that will not pass by itself is remembered in the store.
        """
        if (version := _installed_version(name)) is not None:
            if specifier.contains(version, prereleases=True):
                return Package(name, version, "")
            message = (
                f"{name}{specifier}: the kernel's interpreter has {version}, which comes first"
            )
            raise OperationError("InstallError", message)
        if name not in self._allowed:
            raise _not_listed(name, needed_by)
        requirement = f"{name}{specifier & self._allowed[name]}"
        if (stored_package := self._store.known(requirement)) is not None:
            return stored_package
        if before := self._store.failure(requirement):
            raise OperationError("InstallError", f"{requirement}: {before} ({_UNTIL_CLEARED})")
        report_progress(f"ops.install: fetching {requirement} …")
        try:
            return self._get(requirement, deadline)
        except OperationError as exc:
            if exc.kind in TRANSIENT:
                raise OperationError(exc.kind, f"{requirement}: {exc.message}") from None
            self._store.fail(requirement, exc.message)
            raise OperationError(
                exc.kind, f"{requirement}: {exc.message} ({_UNTIL_CLEARED})"
            ) from None

    def _get(self, requirement: str, deadline: float) -> Package:
        """Fetch a wheel, check that it is the right one, and keep it. Raises OperationError."""
        index = self._table.index
        most = self._table.max_bytes
        with self._store.making() as folder:
            unpacked = folder / "wheel"
            package = self._fetch(
                requirement, index=index, into=unpacked, most=most, deadline=deadline
            )
            expected = Requirement(requirement)
            fits = expected.specifier.contains(package.version, prereleases=True)
            if package.name != expected.name or not fits:
                message = f"the index gave {package.name} {package.version} for it"
                raise OperationError("InstallError", message)
            if (bytes_on_disk := sum(path.stat().st_size for path in _files(unpacked))) > most:
                message = f"it takes {bytes_on_disk:,} bytes on disk; {most:,} may be (max_bytes)"
                raise OperationError("InstallError", message)
            return self._store.keep(requirement, unpacked, package)


def check_names(requirements: Iterable[str], allow: Iterable[str]) -> None:
    """Raise OperationError for a package that is neither listed nor in the interpreter already."""
    allowed = _versions(allow)
    for name in dict.fromkeys(canonical_package(_parse(text).name) for text in requirements):
        if name not in allowed and _installed_version(name) is None:
            raise _not_listed(name)


def _not_listed(name: str, needed_by: str = "") -> OperationError:
    needed = f"{needed_by} needs it, and it" if needed_by else "it"
    return not_granted(f"{name}: {needed} is not in allow of [ops.install]")


def _parse(text: str) -> Requirement:
    try:
        return operations.parse_requirement(text)
    except ValueError as exc:
        raise OperationError("ValueError", f"{text[:100]!r}: {exc}") from None


def _versions(allow: Iterable[str]) -> dict[str, SpecifierSet]:
    """Return the allowed versions by name. Of a name that is listed twice, both entries count."""
    versions: dict[str, SpecifierSet] = {}
    for requirement in map(operations.parse_requirement, allow):
        name = canonical_package(requirement.name)
        versions[name] = versions.get(name, SpecifierSet()) & requirement.specifier
    return versions


def _installed_version(name: str) -> str | None:
    """Return the version of a package in the kernel's interpreter, if it has one."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _requirements_of(package: Package, extra: str) -> list[Requirement]:
    """Return the requirements of a package on this machine, for one of its extras or for none.

    Those of an extra are without the ones that hold anyway. Raises OperationError for a requirement
    that names an address.
    """
    needs = []
    for text in package.needs:
        try:
            need = Requirement(text)
        except InvalidRequirement:
            message = f"{package.name}: what it needs can't be read: {text[:100]!r}"
            raise OperationError("InstallError", message) from None
        if need.url is not None:
            message = f"{package.name}: it names what it needs by an address: {need.name}"
            raise not_granted(message)
        if need.marker is None:
            is_due = not extra
        else:
            without = need.marker.evaluate({"extra": ""})
            is_due = not without and need.marker.evaluate({"extra": extra}) if extra else without
        if is_due:
            needs.append(need)
    return needs


# --- one wheel from an index ------------------------------------------------------------------


def fetch_wheel(requirement: str, *, index: str, into: Path, most: int, deadline: float) -> Package:
    """Unpack the wheel that fits ``requirement`` best ``into`` a folder, and return its package.

    uv does that if it is installed, otherwise pip. Neither fetches dependencies (``--no-deps``):
    pip would fetch, and build, those that a wheel names by an address. Neither builds anything:
    without ``--only-binary :all:``, both would run code that they download. Both ignore
    configuration files and variables. Raises OperationError, also for a file of more than ``most``
    bytes.
    """
    with tempfile.TemporaryFile() as output, tempfile.NamedTemporaryFile() as log:
        command = _command(requirement, index, into, log.name)
        if status := _run_installer(command, output.fileno(), most, deadline):
            output.seek(0)
            texts = (output.read(), log.read(_MAX_LOG))
            raise _install_error(status, *(text.decode("utf-8", "replace") for text in texts))
    (into / ".lock").unlink(missing_ok=True)  # uv's own
    return _package(into)


def _command(requirement: str, index: str, into: Path, log: str) -> list[str]:
    shared = ["--no-deps", "--only-binary", ":all:", "--index-url", index, "--target", str(into)]
    if (uv := operations.find_uv()) is not None:
        own = ["--no-config", "--no-progress", "--link-mode", "copy", "--python", sys.executable]
        return [uv, "pip", "install", "--quiet", *own, *shared, requirement]
    if not operations.has_pip():
        raise OperationError("InstallError", "neither uv nor pip is installed any more")
    own = ["--isolated", "--no-input", "--no-compile", "--disable-pip-version-check", "--log", log]
    pip = [sys.executable, "-I", "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    return [*pip, *own, *shared, requirement]


def _run_installer(command: list[str], output: int, most: int, deadline: float) -> int:
    """Run an installer, and return its exit status. Raises OperationError at ``deadline``.

    ``most`` bounds each file that it writes, in bytes. The process is in this worker's process
    group, so it ends with the worker.
    """
    passed = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    process = subprocess.Popen(
        command,
        env=passed | {"PIP_CONFIG_FILE": os.devnull},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=output,
        cwd=tempfile.gettempdir(),
    )
    try:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise OperationError("TimeoutError", "it took too long ([ops.install] timeout)")
            time.sleep(_POLL_SECONDS)
        return process.returncode
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _install_error(status: int, output: str, log: str) -> OperationError:
    """Return the error for an installer's output, of a kind in TRANSIENT if it may pass."""
    # First, since newer versions of pip report answers of 5xx as too many retries.
    refused_now = bool(_REFUSED_NOW.search(output))
    if not refused_now and any(text in output for text in _UNREACHABLE):
        return OperationError("ConnectError", "its index can't be reached, or does not answer")
    if refused_now or _REFUSED_NOW.search(log):
        return OperationError("ConnectError", "its index answers that it is not available now")
    if match := _LOCAL_ERRNO.search(output):
        return OperationError("OSError", f"this machine says: {os.strerror(int(match[1]))}")
    if status < 0 and status != -signal.SIGXFSZ:
        return OperationError("OSError", "its installer was killed")
    return OperationError("InstallError", _last_error(output))


def _last_error(output: str) -> str:
    """Return the last error in an installer's output, with the line after it, without paths."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [n for n, line in enumerate(lines) if line.lower().startswith("error")] or [0]
    error = " ".join(lines[errors[-1] : errors[-1] + 2]) or "it failed without a word"
    return without_paths(error.removeprefix("ERROR: ").removeprefix("error: "))[:_MAX_MESSAGE]


def _package(folder: Path) -> Package:
    """Return the package that an unpacked wheel's metadata describes. Raises OperationError."""
    files = list(folder.glob("*.dist-info/METADATA"))
    if len(files) != 1:
        raise OperationError("InstallError", "it is not one wheel")
    metadata = email.message_from_string(files[0].read_text("utf-8", "replace"))
    name = canonical_package(str(metadata.get("Name", "")))
    version = str(metadata.get("Version", "")).strip()
    # The store names a folder for both. The installer checked them, too, but may have read another
    # line of the metadata.
    if not is_normalized_name(name) or not _VERSION.fullmatch(version):
        raise OperationError("InstallError", "it is not a wheel: its name or version is not valid")
    return Package(name, version, "", tuple(map(str, metadata.get_all("Requires-Dist", ()))))


# --- packages on disk -------------------------------------------------------------------------


class PackageStore:
    """The packages of one index and list on disk. Each method may raise OSError."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self.lib = self._folder / "lib"

    def prepare(self, about: dict[str, Any]) -> None:
        """Make the folders, and write ``about``, which says what they are for."""
        for name in ("lib", "known", "failed", "making"):
            (self._folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write(self._folder / "about.json", about)

    @contextlib.contextmanager
    def locked(self, deadline: float) -> Iterator[None]:
        """Hold the lock. Raises OperationError at ``deadline``."""
        with (self._folder / "lock").open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError as exc:
                    if exc.errno not in {errno.EAGAIN, errno.EACCES}:
                        raise
                if time.monotonic() > deadline:
                    raise OperationError("TimeoutError", "another kernel is still installing")
                time.sleep(_POLL_SECONDS)
            yield

    @contextlib.contextmanager
    def making(self) -> Iterator[Path]:
        """Make a folder to unpack into, and remove it at the end."""
        folder = Path(tempfile.mkdtemp(dir=self._folder / "making"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def known(self, requirement: str) -> Package | None:
        """Return the package that a requirement was resolved to, if it is still here."""
        record = self._read(self._place("known", requirement))
        if record is None or not (self.lib / record["folder"]).is_dir():
            return None
        return Package(record["name"], record["version"], record["folder"], tuple(record["needs"]))

    def keep(self, requirement: str, unpacked: Path, package: Package) -> Package:
        """Move an unpacked wheel to ``lib``, named for its content, and note its requirement."""
        folder = f"{package.name}-{package.version}-{content(unpacked)}"
        # It fails if the same wheel is there already; any other failure shows below.
        with contextlib.suppress(OSError):
            unpacked.rename(self.lib / folder)
        package_kept = Package(package.name, package.version, folder, package.needs)
        if not (self.lib / folder).is_dir():
            raise OperationError("OSError", f"{package.name} can't be kept on this disk")
        self._write(
            self._place("known", requirement), {"requirement": requirement} | asdict(package_kept)
        )
        return package_kept

    def failure(self, requirement: str) -> str:
        """Return why a requirement failed before; empty if it did not."""
        record = self._read(self._place("failed", requirement))
        return str(record["message"]) if record is not None else ""

    def fail(self, requirement: str, message: str) -> None:
        """Remember that a requirement has failed, and why."""
        record = {"requirement": requirement, "message": message, "time": time.time()}
        self._write(self._place("failed", requirement), record)

    def failures(self) -> list[dict[str, Any]]:
        """Return the requirements that failed: each one's requirement, message and time."""
        return self._all("failed")

    def packages(self) -> list[dict[str, Any]]:
        """Return the resolved requirements: each one's requirement, name, version and folder."""
        return self._all("known")

    def about(self) -> dict[str, Any]:
        """Return the index and list that the folder is for; empty if it was never used."""
        return self._read(self._folder / "about.json") or {}

    def clear(self, matches: Callable[[str], bool], *, installed: bool) -> int:
        """Forget the failures of requirements that match, and if ``installed``, their packages.

        Return how many were forgotten.
        """
        with self.locked(time.monotonic() + 10.0):
            forgotten = 0
            for kind in ("failed", "known") if installed else ("failed",):
                for record in self._all(kind):
                    if matches(record["requirement"]):
                        self._place(kind, record["requirement"]).unlink(missing_ok=True)
                        forgotten += 1
            if installed:
                kept_folders = {record["folder"] for record in self._all("known")}
                for entry in self.lib.iterdir():
                    if entry.name not in kept_folders:
                        shutil.rmtree(entry, ignore_errors=True)
            return forgotten

    def _place(self, kind: str, requirement: str) -> Path:
        digest = hashlib.sha256(requirement.encode()).hexdigest()[:_HASH_DIGITS]
        return self._folder / kind / f"{digest}.json"

    def _all(self, kind: str) -> list[dict[str, Any]]:
        records = map(self._read, sorted((self._folder / kind).glob("*.json")))
        return [record for record in records if record is not None]

    @staticmethod
    def _read(file: Path) -> dict[str, Any] | None:
        with contextlib.suppress(OSError, ValueError):
            record: dict[str, Any] = json.loads(file.read_text("utf-8"))
            return record
        return None

    @staticmethod
    def _write(file: Path, record: dict[str, Any]) -> None:
        beside = file.with_name(f".{file.name}.{os.getpid()}")
        beside.write_text(json.dumps(record), "utf-8")
        beside.replace(file)


def content(folder: Path) -> str:
    """Return a hash of a wheel's files, the same for each installer. Raises OperationError."""
    digest = hashlib.sha256()
    for path in _files(folder):
        name = str(path.relative_to(folder))
        if path.name in _NOT_CONTENT and path.parent.name.endswith(".dist-info"):
            continue
        with path.open("rb") as file:
            inner = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{name}\0{inner}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:_HASH_DIGITS]


def _files(folder: Path) -> list[Path]:
    """Return all files beneath a folder, sorted.

    Raises OperationError for anything that is not a file or folder, such as a link.
    """
    files = []
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            files.append(path)
        elif not stat.S_ISDIR(mode):
            raise OperationError("InstallError", "it holds something that is not a file")
    return files
