"""From a policy to what a guest must lock.

Everything here is decided by the host before a guest exists, about paths without links: a policy's
are, and cells may have put links in their place since, so they are not resolved again; the
machine's own become so here. The guest follows no link when it grants them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from cellblock.backends import places, roots
from cellblock.backends.base import Room, View
from cellblock.errors import PolicyError
from cellblock.policy import store
from cellblock.policy.links import links
from cellblock.policy.paths import within
from cellblock.wire.messages import Limits, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from cellblock.backends.base import Backend
    from cellblock.policy.model import Policy

LIMITS: Final = (
    "memory_max_bytes",
    "max_processes",
    "max_open_files",
    "max_file_size",
)


def plan(
    policy: Policy,
    backend: Backend,
    *,
    scratch: Path,
    project: Path,
    private: Sequence[Path] = (),
) -> Plan:
    """Return what the guest must lock under ``policy``.

    ``scratch`` and ``project``, both canonical, stand for ``{scratch}`` and ``{project}`` where the
    policy still has them; ``private`` are places of the host's own (connection file, audit log)
    that stay unreadable whatever the policy says. A backend that neither locks nor wraps gets an
    empty plan. Raises PolicyError for a policy that can't be kept.
    """
    if not (backend.locks or backend.wraps):
        return Plan()
    fill = {"{scratch}": str(scratch), "{project}": str(project)}
    own = [*places.private_folders(os.environ), *map(str, private)]
    libraries = tuple(places.interpreter())
    write = _writable(policy, fill, own, libraries)
    return Plan(
        read_roots=_readable(policy, fill, own, libraries),
        write_roots=write,
        device_files=roots.canonical(places.DEVICES),
        network=policy.network_access is True,
        # No lock tells hosts apart: the host's relay does, where guests can connect nothing.
        relayed=backend.relays and has_list(policy),
        subprocess=policy.subprocess_execution,
        limits=Limits(**{field: getattr(policy, field) for field in LIMITS}),
        locks=backend.locks,
        required=backend.locks,
    )


def preloaded(policy: Policy, plan: Plan) -> tuple[str, ...]:
    """Return where what a zygote preloads lies, when guests under ``plan`` may not read that."""
    return roots.canonical(places.package_folders(_preloaded(policy), plan.read_roots))


def _preloaded(policy: Policy) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.partition(".")[0] for name in policy.preload))


def has_list(policy: Policy) -> bool:
    """Say whether there are addresses that cells may reach, and others that they may not."""
    return isinstance(policy.network_access, tuple) and bool(policy.network_access)


def view(
    policy: Policy,
    plan: Plan,
    *,
    scratch: Path,
    project: Path,
    private: Sequence[Path] = (),
) -> View:
    """Return what a zygote with a mount namespace of its own is to see, under the same ``plan``.

    Whole roots, where the plan grants what is beside denied paths: those are masked.
    """
    fill = {"{scratch}": str(scratch), "{project}": str(project)}
    own = [*places.private_folders(os.environ), *map(str, private)]
    asked = roots.standing(_filled(root, fill) for root in policy.filesystem_read_roots)
    named = _default_names(policy, places.interpreter())
    defaults = roots.canonical(named)
    imported = (*policy.allowed_modules, *_preloaded(policy))
    packages = tuple(places.package_folders(imported, (*asked, *defaults)))
    # The zygote's own folder, whether its guests may write there or not.
    writable = roots.outermost((*plan.write_roots, str(scratch)))
    return View(
        readable=roots.outermost((*asked, *defaults, *roots.canonical(packages))),
        writable=writable,
        masked=_denied((*policy.read_deny_paths, *own), fill),
        devices=plan.device_files,
        names=(*named, *packages, str(project), str(scratch)),
        movable=_movable(asked, writable, defaults),
        network=plan.network,
        subprocess=plan.subprocess,
        room=_room(policy, str(scratch)),
    )


def _movable(
    asked: Sequence[str], writable: Sequence[str], defaults: Sequence[str]
) -> tuple[str, ...]:
    """Return roots in whose place cells may put something else before they are mounted.

    Not the machine's own, of which an image may have others, nor what comes with a root that is
    written to: that is not mounted for itself.
    """
    read = (root for root in asked if not any(within(root, other) for other in writable))
    return tuple(
        root
        for root in (*read, *writable)
        if root != "/" and not any(within(root, other) for other in defaults)
    )


#: What a zygote takes besides its guests, in bytes and in threads, those of ``preload`` too.
_ZYGOTE_BYTES: Final = 512 * 2**20
_ZYGOTE_TASKS: Final = 32


def _room(policy: Policy, scratch: str) -> Room:
    """Return bounds beyond which nothing is that the policy allows.

    A guest may hold an eighth more than it is allowed until the host looks, and the copy from which
    it would be restored what it has overwritten since.
    """
    files = policy.scratch_max_bytes
    parts = (policy.memory_max_bytes, policy.undo_max_bytes, files)
    guest, *others = (part or 0 for part in parts)
    memory = None if None in parts else guest * 9 // 4 + sum(others) + _ZYGOTE_BYTES
    most = policy.max_processes
    tasks = None if most is None else most + policy.undo_depth + _ZYGOTE_TASKS
    return Room(scratch, files, memory, tasks)


def _default_names(policy: Policy, libraries: Iterable[str]) -> list[str]:
    """Return what is readable without being asked for, as it is spelled."""
    tables = [places.SYSTEM]
    tables += [places.NETWORK] if policy.network_access is True else []
    tables += [places.CERTIFICATES] if policy.network_access else []
    tables += [places.PROGRAMS] if policy.subprocess_execution else []
    paths = [path for table in tables for path, _ in table]
    paths += libraries
    paths += places.interpreter_programs() if policy.subprocess_execution else ()
    packages = store.readable(policy)
    return paths if packages is None else [*paths, packages]


def _default_read_roots(policy: Policy, libraries: Iterable[str]) -> tuple[str, ...]:
    """Return what is readable without being asked for, canonical."""
    return roots.canonical(_default_names(policy, libraries))


def splits_roots(policy: Policy) -> bool:
    """Return whether a denied path lies beneath something readable, so that it had to be cut."""
    defaults = _default_read_roots(policy, places.interpreter())
    readable = (*roots.standing(policy.filesystem_read_roots), *defaults)
    return any(
        within(path, root) for path in _denied(policy.read_deny_paths, {}) for root in readable
    )


def _readable(
    policy: Policy, fill: dict[str, str], own: Iterable[str], libraries: Iterable[str]
) -> tuple[str, ...]:
    denied = _denied((*policy.read_deny_paths, *own), fill)
    asked = [_filled(root, fill) for root in policy.filesystem_read_roots]
    granted = [
        path
        for root in roots.standing(asked)
        for path in roots.without(root, denied, policy_name=policy.name)
    ]
    # The policy's own denials count for default roots too; the host's private places are
    # not beneath any of them, except /proc and /sys, of which single files are granted.
    by_policy = _denied(policy.read_deny_paths, fill)
    defaults = _default_read_roots(policy, libraries)
    packages = roots.canonical(places.package_folders(policy.allowed_modules, defaults))
    granted += [
        path
        for root in (*defaults, *packages)
        for path in roots.without(root, by_policy, policy_name=policy.name)
    ]
    return tuple(dict.fromkeys(granted))


def _writable(
    policy: Policy, fill: dict[str, str], own: Iterable[str], libraries: Iterable[str]
) -> tuple[str, ...]:
    scratch = fill["{scratch}"]
    denied = _denied((*policy.read_deny_paths, *own), fill)
    writable = roots.standing(_filled(root, fill) for root in policy.filesystem_write_roots)
    refuse = _refusing(denied, libraries, policy.name, "filesystem_write_roots")
    for root in writable:
        # The scratch folder may lie in a run-time folder that is otherwise private.
        refuse(root, within(root, scratch))
    return writable


def check_writable(paths: Iterable[str], denied: Sequence[str], policy: Policy, key: str) -> None:
    """Raise PolicyError if the host may not write to one of these roots for cells either."""
    refuse = _refusing(denied, places.interpreter(), policy.name, key)
    for path in paths:
        refuse(path, False)


def _refusing(
    denied: Sequence[str], libraries: Iterable[str], policy_name: str, key: str
) -> Callable[[str, bool], None]:
    """Return what raises PolicyError for a root that may not be written to, or holds such a place.

    It is asked with whether the root is ours, wherever it lies.
    """
    programs = tuple(places.started_unconfined(libraries))
    started = (*roots.canonical(programs), *(link for link, _ in links(programs)))
    hidden = (*denied, *(link for link, _ in links(places.private_folders(os.environ))))
    kept_from: list[tuple[str, Callable[[str, str, str, str], PolicyError]]] = [
        *((path, _readable_by_writing) for path in hidden),
        *((path, _started_by_writing) for path in started),
        (store.base(), _imported_by_writing),
    ]

    def refuse(root: str, ours: bool) -> None:
        for path, refusal in kept_from:
            if within(path, root) or (within(root, path) and not ours):
                raise refusal(root, path, policy_name, key)

    return refuse


def denied(policy: Policy, *, private: Sequence[Path] = ()) -> tuple[str, ...]:
    """Return what is neither read nor written for cells whatever the roots are, by every name."""
    own = (*places.private_folders(os.environ), *map(str, private), store.base())
    return _denied((*policy.read_deny_paths, *own), {})


def _denied(paths: Iterable[str], fill: dict[str, str]) -> tuple[str, ...]:
    named = [os.path.expanduser(_filled(path, fill)) for path in paths]  # noqa: PTH111
    return tuple(dict.fromkeys(form for path in named for form in roots.spellings(path)))


def _filled(path: str, fill: dict[str, str]) -> str:
    for placeholder, folder in fill.items():
        if path.startswith(placeholder):
            return folder + path.removeprefix(placeholder)
    return path


def _readable_by_writing(root: str, denied: str, policy_name: str, key: str) -> PolicyError:
    return PolicyError(
        "can't be kept: what is writable is readable, and this holds a denied path",
        file=policy_name,
        key=key,
        value=repr(root),
        remedy=f"Choose a folder without {denied} in it.",
    )


def _started_by_writing(root: str, path: str, policy_name: str, key: str) -> PolicyError:
    return PolicyError(
        f"cells could change what runs unconfined: {path}",
        file=policy_name,
        key=key,
        value=repr(root),
        remedy="Choose a folder without the Python environment, cellblock or kernelspecs in it.",
    )


def _imported_by_writing(root: str, path: str, policy_name: str, key: str) -> PolicyError:
    return PolicyError(
        "cells could change packages that other kernels import",
        file=policy_name,
        key=key,
        value=repr(root),
        remedy=f"Choose a folder without {path} in it.",
    )
