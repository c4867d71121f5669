"""``ops.install``, and ``packages``: wheels, and what they need, each within the policy's list.

What is needed is settled here, one package at a time: all that is asked of one has to hold at once.
There is no going back to an older version of something to make a newer one of another fit.
"""

from __future__ import annotations

import contextlib
import email
import importlib.metadata
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import is_normalized_name
from packaging.version import VERSION_PATTERN

from cellblock.host.services.operations.package_store import Package, PackageStore, size
from cellblock.host.services.operations.urls import TRANSIENT, OperationError, not_granted
from cellblock.host.services.tools.results import without_paths
from cellblock.host.services.tools.runner import report_progress
from cellblock.policy import operations
from cellblock.policy.operations import canonical_package

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from cellblock.host.services.operations.catalog import Install

    Fetch = Callable[..., Package]


# One wheel from an index, unpacked: by uv where that is installed, else by pip. In the worker.
#
# Neither is asked to settle what else is needed (``--no-deps``): pip would fetch, and build,
# what a wheel names by an address. Nothing is ever built: without ``--only-binary :all:`` both
# would run what they download. No configuration of theirs counts, nor any variable.

#: What they need of the environment: where they are, whom they trust, whom they go through.
_PASSED: Final = (
    "HOME", "HTTPS_PROXY", "HTTP_PROXY", "LANG", "LD_LIBRARY_PATH", "NO_PROXY", "PATH",
    "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR", "https_proxy", "http_proxy",
    "no_proxy",
)  # fmt: skip
#: Seconds between looks at a process; what is cancelled stops within one.
_LOOK: Final = 0.05
_LONGEST: Final = 300
_VERSION: Final = re.compile(VERSION_PATTERN, re.VERBOSE | re.IGNORECASE)
#: What pip, then uv, says when it gave up on a connection: pip ends as if there were no package.
_UNREACHED: Final = (
    "Retry(total=0,", "Max retries exceeded", "error sending request", "tcp connect error",
    "operation timed out",
)  # fmt: skip
#: What uv, then pip, says of an index that answers, and not now, or not to us: 5xx, 401, 407, 408,
#: 429. Of some, uv says that there is no such package, and pip nothing but in its log.
_NOT_NOW: Final = re.compile(
    r"HTTP status server error \(|HTTP status client error \(4(?:01|07|08|29) |\(401 Unauthorized\)"
    r"|too many 5\d\d error responses|: 5\d\d Server Error|[: ]4(?:01|07|08|29) Client Error"
)
#: What both say of this machine: input and output, memory, descriptors, a full disk, a read-only
#: one, a quota (errno(3)); not of a file that is too large.
_OF_HERE: Final = re.compile(r"(?:\[Errno |\(os error )(5|12|23|24|28|30|122)[\])]")
#: Bytes of pip's log that are read; it is told early what of the index could not be had.
_LONGEST_LOG: Final = 2**20


def fetch(requirement: str, *, index: str, into: Path, most: int, deadline: float) -> Package:
    """Unpack the wheel that fits ``requirement`` best into a folder; return what it is.

    ``most`` bytes at most; ``folder`` of what is returned is empty. Raises OperationError.
    """
    with tempfile.TemporaryFile() as said, tempfile.NamedTemporaryFile() as log:
        command = _command(requirement, index, into, log.name)
        status = _run(command, said.fileno(), most, deadline)
        if status:
            said.seek(0)
            texts = (said.read(), log.read(_LONGEST_LOG))
            raise _failed(status, *(text.decode("utf-8", "replace") for text in texts))
    (into / ".lock").unlink(missing_ok=True)  # uv's own
    return _package(into)


def _command(requirement: str, index: str, into: Path, log: str) -> list[str]:
    shared = ["--no-deps", "--only-binary", ":all:", "--index-url", index, "--target", str(into)]
    if (uv := operations.find_uv()) is not None:
        own = ["--no-config", "--no-progress", "--link-mode", "copy", "--python", sys.executable]
        return [uv, "pip", "install", "--quiet", *own, *shared, requirement]
    if not operations.has_pip():
        raise OperationError("InstallError", "neither uv nor pip is there any more")
    own = ["--isolated", "--no-input", "--no-compile", "--disable-pip-version-check", "--log", log]
    pip = [sys.executable, "-I", "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    return [*pip, *own, *shared, requirement]


def _run(command: list[str], said: int, most: int, deadline: float) -> int:
    """Return the exit status of a process of this one's group, which so ends with it."""
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    process = subprocess.Popen(  # noqa: S603 - what it is given was checked
        command,
        env=passed | {"PIP_CONFIG_FILE": os.devnull},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=said,
        cwd=tempfile.gettempdir(),
    )
    try:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise OperationError("TimeoutError", "it took too long ([ops.install] timeout)")
            time.sleep(_LOOK)
        return process.returncode
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _failed(status: int, said: str, log: str) -> OperationError:
    """Return the error for what an installer says; of a kind in TRANSIENT unless the package's."""
    # Newer pips call answers of 5xx too many retries.
    answers = bool(_NOT_NOW.search(said))
    if not answers and any(sign in said for sign in _UNREACHED):
        return OperationError("ConnectError", "its index can't be reached, or does not answer")
    if answers or _NOT_NOW.search(log):
        return OperationError("ConnectError", "its index answers that it can't be had now")
    if found := _OF_HERE.search(said):
        return OperationError("OSError", f"this machine says: {os.strerror(int(found[1]))}")
    if status < 0 and status != -signal.SIGXFSZ:
        return OperationError("OSError", "what installs it was killed")
    return OperationError("InstallError", _why(said))


def _why(said: str) -> str:
    """Return what an installer says last of what went wrong, with what it says of its cause."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [n for n, line in enumerate(lines) if line.lower().startswith("error")] or [0]
    told = " ".join(lines[errors[-1] : errors[-1] + 2]) or "it failed without a word"
    return without_paths(told.removeprefix("ERROR: ").removeprefix("error: "))[:_LONGEST]


def _package(folder: Path) -> Package:
    """Read what a wheel says of itself."""
    found = list(folder.glob("*.dist-info/METADATA"))
    if len(found) != 1:
        raise OperationError("InstallError", "it is not one wheel")
    said = email.message_from_string(found[0].read_text("utf-8", "replace"))
    name = canonical_package(str(said.get("Name", "")))
    version = str(said.get("Version", "")).strip()
    # A folder is named for both, and whoever unpacked it may have read another line for them.
    if not is_normalized_name(name) or not _VERSION.fullmatch(version):
        raise OperationError("InstallError", "it is no wheel: its name or version is none")
    return Package(name, version, "", tuple(map(str, said.get_all("Requires-Dist", ()))))


#: Packages that one call may come to.
_MOST: Final = 200
_CLEAR: Final = "it is not tried again before `cellblock packages clear`"


class Installer:
    """Installs within a table. ``fetch`` unpacks one wheel."""

    def __init__(self, table: Install, fetch: Fetch = fetch) -> None:
        self._table, self._shelf, self._fetch = table, PackageStore(table.folder), fetch
        self._allowed = _joined(map(operations.parse_requirement, table.allow))

    def install(self, *packages: str) -> dict[str, Any]:
        """Have the host install packages that the policy grants: wheels from its index.

        ``ops.install("tabulate", "numpy<3")``; what they need comes along. Returns names and
        versions. They can be imported from then on, as far as the policy lets cells import them.
        """
        wanted = [_asked(text) for text in packages]
        deadline = time.monotonic() + self._table.timeout
        try:
            self._shelf.prepare({"index": self._table.index, "allow": list(self._table.allow)})
            with self._shelf.locked(deadline):
                found = _Search(self, deadline).all(wanted)
        except OSError as exc:
            said = f"the folder of packages can't be used: {exc.strerror}"
            raise OperationError("OSError", said) from None
        installed = sorted(f"{one.name} {one.version}" for one in found)
        report_progress(f"ops.install: {', '.join(installed) or 'nothing to install'}")
        paths = [str(self._shelf.lib / one.folder) for one in found if one.folder]
        return {"installed": installed, "paths": paths}

    def allowed(self, name: str, for_whom: str) -> SpecifierSet:
        """Return the versions that the policy allows of a package. Raises OperationError."""
        if name not in self._allowed:
            raise _not_listed(name, for_whom)
        return self._allowed[name]

    def package(self, requirement: str, deadline: float) -> Package:
        """Return a package that is here, or get it. Raises OperationError."""
        if (known := self._shelf.known(requirement)) is not None:
            return known
        if before := self._shelf.failure(requirement):
            raise OperationError("InstallError", f"{requirement}: {before} ({_CLEAR})")
        report_progress(f"ops.install: fetching {requirement} …")
        try:
            return self._new(requirement, deadline)
        except OperationError as exc:
            if exc.kind in TRANSIENT:
                raise OperationError(exc.kind, f"{requirement}: {exc.message}") from None
            self._shelf.fail(requirement, exc.message)
            raise OperationError(exc.kind, f"{requirement}: {exc.message} ({_CLEAR})") from None

    def _new(self, requirement: str, deadline: float) -> Package:
        table = self._table
        with self._shelf.making() as folder:
            unpacked = folder / "wheel"
            package = self._fetch(
                requirement,
                index=table.index,
                into=unpacked,
                most=table.max_bytes,
                deadline=deadline,
            )
            asked = Requirement(requirement)
            fits = asked.specifier.contains(package.version, prereleases=True)
            if package.name != asked.name or not fits:
                said = f"the index gave {package.name} {package.version} for it"
                raise OperationError("InstallError", said)
            if (taken := size(unpacked)) > table.max_bytes:
                said = f"it takes {taken:,} bytes on disk; {table.max_bytes:,} may be (max_bytes)"
                raise OperationError("InstallError", said)
            return self._shelf.keep(requirement, unpacked, package)


def check_names(asked: Iterable[str], allow: Iterable[str]) -> None:
    """Raise OperationError for packages that are neither listed nor in the interpreter already."""
    allowed = _joined(map(operations.parse_requirement, allow))
    for name in dict.fromkeys(canonical_package(_asked(text).name) for text in asked):
        if name not in allowed and _here(name) is None:
            raise _not_listed(name)


def _not_listed(name: str, for_whom: str = "") -> OperationError:
    needed = f"{for_whom} needs it, and it" if for_whom else "it"
    return not_granted(f"{name}: {needed} is not in allow of [ops.install]")


def _asked(text: str) -> Requirement:
    try:
        return operations.parse_requirement(text)
    except ValueError as exc:
        raise OperationError("ValueError", f"{text[:100]!r}: {exc}") from None


class _Search:
    """What one call comes to: versions that fit all that is asked of each package."""

    def __init__(self, installer: Installer, deadline: float) -> None:
        self._installer, self._deadline = installer, deadline
        self._wanted: dict[str, SpecifierSet] = {}
        self._found: dict[str, Package] = {}
        #: Extras whose needs have been looked at, by package; empty for none.
        self._seen: set[tuple[str, str, str]] = set()

    def all(self, asked: list[Requirement]) -> list[Package]:
        """Return all packages that are needed, those that the interpreter has without folder."""
        queue = [(one, "") for one in asked]
        while queue:
            requirement, for_whom = queue.pop(0)
            queue += self._settle(requirement, for_whom)
            if len(self._found) > _MOST:
                raise OperationError("InstallError", f"it comes to more than {_MOST} packages")
        return list(self._found.values())

    def _settle(self, asked: Requirement, for_whom: str) -> list[tuple[Requirement, str]]:
        """Have what is asked for, and return what that needs."""
        name = canonical_package(asked.name)
        before = self._found.get(name)
        self._wanted[name] = self._wanted.get(name, SpecifierSet()) & asked.specifier
        if before is None or not self._wanted[name].contains(before.version, prereleases=True):
            self._found[name] = self._package(name, for_whom)
        package, needed = self._found[name], []
        for extra in ("", *sorted(asked.extras)):
            if (one := (name, package.version, extra)) not in self._seen:
                self._seen.add(one)
                needed += [(need, name) for need in _needs(package, extra)]
        return needed

    def _package(self, name: str, for_whom: str) -> Package:
        wanted = self._wanted[name]
        if (version := _here(name)) is not None:
            if wanted.contains(version, prereleases=True):
                return Package(name, version, "")
            said = f"{name}{wanted}: the kernel's interpreter has {version}, which comes first"
            raise OperationError("InstallError", said)
        allowed = self._installer.allowed(name, for_whom)
        return self._installer.package(f"{name}{wanted & allowed}", self._deadline)


def _needs(package: Package, extra: str) -> list[Requirement]:
    """Return what a package needs here, with an extra of its own or without any."""
    found = []
    for text in package.needs:
        try:
            need = Requirement(text)
        except InvalidRequirement:
            said = f"{package.name}: what it needs can't be read: {text[:100]!r}"
            raise OperationError("InstallError", said) from None
        if need.url is not None:
            said = f"{package.name}: it names what it needs by an address: {need.name}"
            raise not_granted(said)
        if _is_due(need, extra):
            found.append(need)
    return found


def _is_due(need: Requirement, extra: str) -> bool:
    """Say whether something is needed here for an extra, and not anyhow."""
    if need.marker is None:
        return not extra
    without = need.marker.evaluate({"extra": ""})
    return need.marker.evaluate({"extra": extra}) and not without if extra else without


def _joined(given: Any) -> dict[str, SpecifierSet]:
    """Return versions by name; what is listed twice has to hold twice."""
    found: dict[str, SpecifierSet] = {}
    for one in given:
        name = canonical_package(one.name)
        found[name] = found.get(name, SpecifierSet()) & one.specifier
    return found


def _here(name: str) -> str | None:
    """Return the version that the kernel's interpreter has of a package, if it has any."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
