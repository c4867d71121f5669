"""``ops.install``, and ``packages``: wheels, and what they need, each within the policy's list.

What is needed is settled here, one package at a time: all that is asked of one has to hold at once.
There is no going back to an older version of something to make a newer one of another fit.
"""

from __future__ import annotations

import importlib.metadata
import time
from typing import TYPE_CHECKING, Any, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

from cellblock.host.ops import wheels
from cellblock.host.ops.errors import TRANSIENT, OperationError, not_granted
from cellblock.host.ops.shelf import Package, Shelf, size
from cellblock.host.tools.progress import tell
from cellblock.policy import requirements
from cellblock.policy.requirements import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cellblock.host.ops.settings import Install

    Fetch = Callable[..., Package]

#: Packages that one call may come to.
_MOST: Final = 200
_CLEAR: Final = "it is not tried again before `cellblock packages clear`"


class Installer:
    """Installs within a table. ``fetch`` unpacks one wheel."""

    def __init__(self, table: Install, fetch: Fetch = wheels.fetch) -> None:
        self._table, self._shelf, self._fetch = table, Shelf(table.folder), fetch
        self._allowed = _joined(map(requirements.parse, table.allow))

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
        tell(f"ops.install: {', '.join(installed) or 'nothing to install'}")
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
        tell(f"ops.install: fetching {requirement} …")
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
    allowed = _joined(map(requirements.parse, allow))
    for name in dict.fromkeys(canonical(_asked(text).name) for text in asked):
        if name not in allowed and _here(name) is None:
            raise _not_listed(name)


def _not_listed(name: str, for_whom: str = "") -> OperationError:
    needed = f"{for_whom} needs it, and it" if for_whom else "it"
    return not_granted(f"{name}: {needed} is not in allow of [ops.install]")


def _asked(text: str) -> Requirement:
    try:
        return requirements.parse(text)
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
        name = canonical(asked.name)
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
        name = canonical(one.name)
        found[name] = found.get(name, SpecifierSet()) & one.specifier
    return found


def _here(name: str) -> str | None:
    """Return the version that the kernel's interpreter has of a package, if it has any."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
