"""The plan of what guests must lock (``make_plan``), and the view of what their zygote sees.

``host.session.config`` makes both from a policy, before a guest exists. They contain canonical
paths, without links. A policy's paths are canonical already and are not resolved again, because
cells may have put links in their place; the machine's own paths are resolved here. The guest
follows no link when it grants them.

Landlock has no deny rule, so a denied path is left out (``cut_out``): a root with a denied path
beneath it is replaced by all its entries except the one that leads to that path, level by level. So
entries that are made later directly in such a folder are not readable, and the folder can't be
listed. A hard link to a denied file elsewhere beneath a root is not recognised, which is disclosed
as a hole of ``read_deny_paths``. A root beneath which only files are denied by their names can be
listed all the same: the names of secrets are not secret.
"""

from __future__ import annotations

import fcntl
import glob
import ipaddress
import json
import os
import sys
import sysconfig
from collections import Counter, defaultdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.backends.base import Bounds, View, has_list
from cellblock.descriptors import identity
from cellblock.guest import installed
from cellblock.policy.folders import package_folder
from cellblock.policy.network import LOCALHOST, LOOPBACK, is_loopback, parse_address
from cellblock.policy.paths import entries_of, is_pattern, links, pattern_beneath, within
from cellblock.wire.messages import SHARED_MEMORY, Device, Layer, Limits, Neighbour, Plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cellblock.backends.base import Backend
    from cellblock.errors import PolicyError
    from cellblock.policy.model import Policy

#: Fields of a policy that are limits which the guest sets itself.
GUEST_LIMITS: Final = Limits.__struct_fields__
#: Rules that one root may become. For each rule Landlock needs 32 µs whenever a guest starts anew,
#: and a kernel's first start needs about 100 µs, including looking for the path and sending it. So
#: 20,000 rules take 2 s.
MAX_EXPANSION: Final = 20_000
#: Bytes of all paths of a plan: a sixth of a frame (``wire.frames.MAX_FRAME``), in which the plan
#: is sent beside inputs and an environment. 20,000 rules take half of that if each path has a
#: hundred bytes; a path may have 4,096.
MAX_PLAN_BYTES: Final = 4 * 2**20
#: Denied paths that are mounted over. bwrap takes 9,000 words, three for each of these. For the OS
#: kernel each takes longer the more there are: 2,000 take six seconds.
MAX_MASKS: Final = 2_500

#: The folder in which libraries measure processes. It is readable only if it shows the processes of
#: a PID namespace alone. No rule of Landlock can tell future processes from everything else that is
#: in this folder, so the backend leaves only ``PROC_FILES`` of the rest.
PROC: Final = "/proc"
#: Bytes of shared memory if the policy sets no limit on memory.
_LEAST_SHM: Final = 64 * 2**20

#: A cell is killed at once if it exceeds ``scratch_max_bytes`` by a quarter (1 / ``_FAR_PART``), or
#: by ``_FAR_BYTES`` if that is more: there is no time left for an interrupt.
_FAR_PART = 4
_FAR_BYTES = 64 * 2**20

#: What a zygote needs beside its guests, in bytes and in threads, including those of ``preload``.
_ZYGOTE_BYTES: Final = 512 * 2**20
_ZYGOTE_TASKS: Final = 32

#: Whether file systems find a name in any case and in any form of Unicode, as those of macOS do.
_LOOSE_NAMES: Final = sys.platform == "darwin"
#: MAXPATHLEN of macOS, in bytes.
_MAX_PATH_BYTES: Final = 1_024


def make_plan(
    policy: Policy,
    backend: Backend,
    *,
    scratch: Path,
    project: Path,
    private: Sequence[Path] = (),
    layers: tuple[Layer, ...] = (),
    pooled: bool = False,
) -> Plan:
    """Return the plan of what the guest must lock under ``policy``.

    ``scratch`` and ``project``, both canonical, replace ``{scratch}`` and ``{project}`` if the
    policy still has these. ``private`` are paths of the host (connection file, audit log) that stay
    unreadable whatever the policy says. ``pooled`` says that the zygote has guests of several
    sessions. A backend that neither locks nor wraps gets an empty plan. Raises PolicyError for a
    policy that can't be kept, also if its plan would have more than ``MAX_PLAN_BYTES``; no other
    place bounds the plan.
    """
    if not (backend.locks or backend.wraps):
        return Plan()
    fill = {"{scratch}": str(scratch), "{project}": str(project)}
    hiding = Plan(layers=layers)
    all_denied = _denied(policy, private, fill)
    denied = hiding.not_hidden(all_denied)
    libraries = tuple(interpreter())
    write_roots = roots(policy.filesystem_write_roots, fill)
    unwritable = _never_writable(denied, libraries)
    for root in write_roots:
        # The scratch folder may lie in a run-time folder that is otherwise private.
        ours = within(root, fill["{scratch}"])
        _refuse_writable(root, unwritable, policy, "filesystem_write_roots", ours=ours)
    staged: tuple[str, ...] = ()
    read_roots = roots(policy.filesystem_read_roots, fill)
    for root in roots(policy.filesystem_staged_roots, fill):
        is_laid = any(within(root, layer.root) for layer in layers)
        if is_laid and any(within(root, read_root) for read_root in read_roots):
            # A denied path that the layer does not hide, for example in a folder that Python
            # imports from, is cut out of the root.
            staged += cut_out(root, denied, policy)
    own_namespaces = policy.subprocess_execution and backend.namespaces
    shared = own_namespaces or (policy.subprocess_execution and bool(layers))
    own_mounts = pooled and own_namespaces and not layers and backend.separates_sessions
    # With a list or ports, sessions of one zygote would share a network.
    own_mounts = own_mounts and not (has_list(policy) or policy.ports)
    readable = _readable(policy, fill, denied, libraries)
    plan = Plan(
        read_roots=(*readable, *((PROC,) if own_namespaces else ())),
        listed=tuple(root for root in read_roots if _can_be_listed(root, denied, policy)),
        write_roots=(*write_roots, *((SHARED_MEMORY,) if shared else ())),
        device_files=canonical(DEVICES),
        devices=_devices(policy, backend),
        staged_roots=staged,
        layers=layers,
        apart=_are_apart(read_roots, write_roots, layers, fill["{scratch}"]),
        # Otherwise bubblewrap has mounted one /dev/shm for all guests of the zygote.
        shared_memory=_shared_memory(policy)
        if shared and (own_mounts or not own_namespaces)
        else 0,
        own_mounts=own_mounts,
        network=policy.network_access is True,
        # No lock tells hosts apart, so the guests' network has only the listed hosts in it.
        neighbours=_neighbours(policy, backend),
        subprocess=policy.subprocess_execution,
        limits=_limits(
            policy,
            staged=bool(layers),
            kept=write_roots == (fill["{scratch}"],),
            memory=_shared_memory(policy) if shared else 0,
        ),
        locks=backend.locks,
        required=backend.locks,
    )
    plan = msgspec.structs.replace(plan, **_sockets(policy, plan, backend))
    named = (*read_roots, *write_roots, *(layer.root for layer in layers))
    _refuse_large(plan, policy, all_denied, named)
    return plan


def _devices(policy: Policy, backend: Backend) -> tuple[Device, ...]:
    """Return the devices that guests get. Raises PolicyError for one that no policy may grant."""
    if not policy.devices:
        return ()
    from cellblock.backends import devices  # noqa: PLC0415 - most policies have none

    granted_devices = devices.granted(policy)
    return granted_devices if backend.grants_devices else ()


def _limits(policy: Policy, *, staged: bool, kept: bool, memory: int) -> Limits:
    """Return the limits that the guest sets itself.

    When a cell opens a file of the project for writing, the overlay copies the whole file to a
    place where nobody sees it until that is done. Only the process's own limit on the size of files
    (RLIMIT_FSIZE) holds meanwhile. So if cells write only to layers (``staged``) and to the scratch
    folder (``kept``), no file may be larger than all that they may have in the scratch folder, or
    in the ``memory`` that processes share.
    """
    limits = {field: getattr(policy, field) for field in GUEST_LIMITS}
    file_max = policy.max_file_size
    scratch_max = policy.scratch_max_bytes
    if staged and kept and scratch_max is not None:
        end = max(scratch_end(scratch_max), memory)
        limits["max_file_size"] = end if file_max is None else min(file_max, end)
    return Limits(**limits)


def scratch_end(bound: int) -> int:
    """Return the size in bytes of the scratch folder above which a cell is killed at once.

    ``bound`` is the policy's limit.
    """
    return bound + max(bound // _FAR_PART, _FAR_BYTES)


def _sockets(policy: Policy, plan: Plan, backend: Backend) -> dict[str, Any]:
    """Return the fields of the plan about sockets in the session's own network.

    These say whether the session's programs reach each other (``loopback``), also by Unix sockets
    (``local_sockets``), whether the host can enter the network (``serves``), and to which ports
    programs may bind (``bound``). A zygote that lays layers has namespaces, and makes one for the
    network as well. A Unix socket is named by a path, which no lock looks at, so only the session's
    own sockets may have a path there.
    """
    loopback = policy.subprocess_execution and not policy.network_access
    loopback = loopback and (backend.namespaces or bool(plan.layers))
    loopback = loopback or bool(plan.neighbours)
    # If the network has another purpose, too, programs there use ports that no policy lists.
    alone = not loopback and policy.ports != "any"
    serves = bool(policy.ports) and not backend.why_no_ports()
    loopback = loopback or serves
    bound = policy.ports if serves and alone and isinstance(policy.ports, tuple) else None
    local = loopback and policy.subprocess_execution and backend.namespaces and plan.apart
    return {"loopback": loopback, "local_sockets": local, "serves": serves, "bound": bound}


#: The first of the loopback device's addresses that listed names get in a session's network.
_MADE_UP: Final = ipaddress.IPv4Address("127.80.0.1")


def _neighbours(policy: Policy, backend: Backend) -> tuple[Neighbour, ...]:
    """Return the listed hosts as guests find them, if guests can have a network of their own."""
    if not isinstance(policy.network_access, tuple) or not has_list(policy):
        return ()
    if backend.why_no_list():
        return ()
    listed = [parse_address(entry) for entry in policy.network_access]
    used_addresses = {entry.literal for entry in listed}
    free = (address for number in count() if (address := _MADE_UP + number) not in used_addresses)
    names = dict.fromkeys(entry.host for entry in listed if entry.literal is None)
    made_up = {name: str(next(free)) for name in names if name != LOCALHOST}
    neighbours = dict[tuple[str, int], Neighbour]()
    for entry in listed:
        name = "" if entry.literal is not None else entry.host
        addresses: Iterable[str] = (made_up.get(entry.host, entry.host),)
        if name == LOCALHOST:
            addresses = LOOPBACK
        for target in addresses:
            if name or backend.adds_addresses or is_loopback(target):
                neighbour = Neighbour(name=name, address=target, port=entry.port)
                neighbours.setdefault((target, entry.port), neighbour)
    return tuple(neighbours.values())


def _are_apart(
    read_roots: Iterable[str], write_roots: Iterable[str], layers: Sequence[Layer], scratch: str
) -> bool:
    """Return whether all roots lie in the scratch folder or in a layer.

    A layer's files have locks and sockets of their own: nobody who uses the folder below the layer
    sees these.
    """
    places = (scratch, *(layer.root for layer in layers))
    return all(any(within(root, place) for place in places) for root in (*read_roots, *write_roots))


def _refuse_large(plan: Plan, policy: Policy, denied: Iterable[str], named: Sequence[str]) -> None:
    """Raise PolicyError if a plan is too large to be sent. ``named`` are its roots."""
    sizes = Counter[str]()
    for path in _paths_of(plan):
        sizes[path] += len(os.fsencode(path))
    total = sizes.total()
    if total > MAX_PLAN_BYTES:
        folder = _heaviest(sizes, total - MAX_PLAN_BYTES // 2)
        number = f"more than {MAX_PLAN_BYTES:,}"
        problem = f"can't be kept: to name what is beneath {folder} singly takes {number} bytes"
        raise _unkept_error(problem, folder, denied, named, policy)


def _paths_of(plan: Plan) -> Iterator[str]:
    """Yield every path in the lists of a plan."""
    yield from (*plan.read_roots, *plan.write_roots, *plan.staged_roots, *plan.listed)
    for layer in plan.layers:
        yield from (layer.root, layer.folder)
        top = layer.root.rstrip("/")
        for name in (*layer.hidden, *layer.fixed, *layer.covered):
            yield f"{top}/{name}"


def _heaviest(weights: Mapping[str, int], enough: int) -> str:
    """Return the innermost folder beneath which the paths together weigh ``enough``.

    A folder whose name can't be printed, and so not be written in a policy, is left out in favour
    of the one above.
    """
    levels = defaultdict[int, Counter[str]](Counter)
    for path, weight in weights.items():
        folder = os.path.dirname(path)
        levels[folder.count("/")][folder] += weight
    for depth in range(max(levels), 0, -1):
        for folder, weight in levels[depth].items():
            if weight >= enough and folder.isprintable():
                return folder
            above = os.path.dirname(folder)
            levels[depth - 1][above] += weight
    return "/"


def _can_be_listed(root: str, denied: Iterable[str], policy: Policy) -> bool:
    """Whether a root was cut only because of files that are denied by their names."""
    beneath = [path for path in denied if within(path, root)]
    names = policy.read_deny_paths
    return bool(beneath) and all(pattern_beneath(path, (root,), names) for path in beneath)


def _readable(
    policy: Policy, fill: dict[str, str], denied: Sequence[str], libraries: Sequence[str]
) -> tuple[str, ...]:
    read_roots = roots(policy.filesystem_read_roots, fill)
    granted = [path for root in read_roots for path in cut_out(root, denied, policy)]
    # The policy's own denials apply to default roots, too. The host's private places don't lie
    # beneath any of these, except in /proc and /sys, of which only single files are granted.
    by_policy = [path for path in _by_every_name(policy.read_deny_paths, fill) if path in denied]
    defaults = canonical(_default_names(policy, libraries))
    packages = canonical(package_paths(policy.allowed_modules, defaults))
    for root in (*defaults, *packages):
        granted += cut_out(root, by_policy, policy)
    return tuple(dict.fromkeys(granted))


def _default_names(policy: Policy, libraries: Iterable[str]) -> list[str]:
    """Return the paths that are readable by default, as they are spelled."""
    tables = [SYSTEM]
    tables += [NETWORK] if policy.network_access is True else []
    tables += [CERTIFICATES] if policy.network_access else []
    has_network = policy.subprocess_execution or has_list(policy) or policy.ports
    tables += [LOCAL] if has_network else []
    tables += [PROGRAMS, OF_PROGRAMS] if policy.subprocess_execution else []
    paths = [path for table in tables for path, _ in table]
    paths += libraries
    if policy.devices:
        from cellblock.backends import devices  # noqa: PLC0415 - most policies have none

        paths += devices.files(policy)
    if policy.subprocess_execution:
        paths += (*interpreter_programs(), *interpreter_headers())
        paths += (path for folder in SHARED_DATA for path in _shared_entries(folder))
    packages = policy.package_library()
    return paths if packages is None else [*paths, packages]


def splits_roots(policy: Policy) -> bool:
    """Whether a denied path lies beneath a readable root, so that this root must be cut."""
    defaults = canonical(_default_names(policy, interpreter()))
    readable = (*standing(policy.filesystem_read_roots), *defaults)
    return any(within(path, root) for path in denied_paths(policy) for root in readable)


def preloaded(policy: Policy, plan: Plan) -> tuple[str, ...]:
    """Return the paths of the packages that a zygote preloads and that its guests may not read."""
    return canonical(package_paths(_preloaded_packages(policy), plan.read_roots))


def _preloaded_packages(policy: Policy) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.partition(".")[0] for name in policy.preload))


# --- what a zygote sees -----------------------------------------------------------------------


def make_view(
    policy: Policy,
    plan: Plan,
    *,
    scratch: Path,
    project: Path,
    private: Sequence[Path] = (),
) -> View:
    """Return what a zygote with a mount namespace of its own may see, under the same ``plan``.

    Where the plan grants the entries beside a denied path, the view has the whole root and masks
    the denied path. Raises PolicyError if that takes more than ``MAX_MASKS`` masks.
    """
    fill = {"{scratch}": str(scratch), "{project}": str(project)}
    read_roots = roots(policy.filesystem_read_roots, fill)
    named = _default_names(policy, interpreter())
    defaults = canonical(named)
    imported = (*policy.allowed_modules, *_preloaded_packages(policy))
    packages = tuple(package_paths(imported, (*read_roots, *defaults)))
    shared = SHARED_MEMORY in plan.write_roots

    def is_laid(path: str) -> bool:
        return any(within(path, layer.root) for layer in plan.layers)

    denied = tuple(path for path in _denied(policy, private, fill) if not is_laid(path))
    stores = {os.path.dirname(os.path.dirname(layer.folder)) for layer in plan.layers}
    write_roots = (root for root in plan.write_roots if root != SHARED_MEMORY)
    # The zygote's own folder, whether its guests may write there or not.
    writable = outermost((*write_roots, *sorted(stores), str(scratch)))
    # A layer is laid over a whole root. If cells may read only a part of the root by now, Landlock
    # keeps them from the rest.
    laid_over = (layer.root for layer in plan.layers)
    readable = outermost((*read_roots, *defaults, *canonical(packages), *laid_over))
    if len(denied) > MAX_MASKS:
        _refuse_many_masks(denied, (*readable, *writable), policy)
    return View(
        readable=readable,
        writable=writable,
        # Nothing in a layer is masked, because no layer can be laid over a mask (CVE-2021-3732).
        # The layer itself hides a denied path, and the zygote covers what a narrowing denies later.
        masked=denied,
        devices=(*plan.device_files, *(device.path for device in plan.devices)),
        names=(*named, *packages, str(project), str(scratch)),
        movable=_movable(read_roots, writable, defaults),
        network=plan.network,
        subprocess=plan.subprocess,
        bounds=_bounds(policy, str(scratch)),
        staged=bool(plan.layers),
        shared_memory=_shared_memory(policy) if shared else 0,
        own_mounts=plan.own_mounts,
        neighbours=plan.neighbours,
        serves=plan.serves,
    )


def _shared_memory(policy: Policy) -> int:
    return max((policy.memory_max_bytes or 0) // 4, _LEAST_SHM)


def interpreter_view(writable: tuple[str, ...] = ()) -> View:
    """Return a view of what the interpreter needs and of ``writable`` folders, for a probe."""
    names = [*(path for path, _ in SYSTEM), *interpreter()]
    devices = canonical(DEVICES)
    return View(canonical(names), writable, (), devices, tuple(names), staged=bool(writable))


def _movable(
    read_roots: Sequence[str], writable: Sequence[str], defaults: Sequence[str]
) -> tuple[str, ...]:
    """Return the roots in whose place cells may have put something else before they are mounted.

    Leaves out the machine's own roots (``defaults``), because a container may have others. Leaves
    out read roots in a writable folder, too, because they are not mounted by themselves.
    """
    replaceable = (
        root for root in read_roots if not any(within(root, folder) for folder in writable)
    )
    return tuple(
        root
        for root in (*replaceable, *writable)
        if root != "/" and not any(within(root, folder) for folder in defaults)
    )


def _bounds(policy: Policy, scratch: str) -> Bounds:
    """Return bounds that are never exceeded by what the policy allows.

    A guest may hold an eighth more memory than it is allowed until the host looks. The copy from
    which it would be restored also holds the pages that the guest has overwritten since.
    """
    files = policy.scratch_max_bytes
    parts = (policy.memory_max_bytes, policy.undo_max_bytes, files)
    guest, *other_sizes = (size or 0 for size in parts)
    memory = None if None in parts else guest * 9 // 4 + sum(other_sizes) + _ZYGOTE_BYTES
    max_processes = policy.max_processes
    tasks = (
        None
        if max_processes is None
        else max_processes + policy.undo_depth + policy.max_branches + _ZYGOTE_TASKS
    )
    return Bounds(scratch, files, memory, tasks)


def is_masked(path: str, visible: Iterable[str]) -> bool:
    """Whether ``path`` must be masked: it exists, is no link, and lies in a ``visible`` path."""
    if os.path.islink(path) or not os.path.exists(path):
        return False
    return any(within(path, root) for root in visible)


def _refuse_many_masks(denied: Sequence[str], visible: Sequence[str], policy: Policy) -> None:
    """Raise PolicyError if more paths would be masked than a wrapper can mount over."""
    masks = outermost(path for path in denied if is_masked(path, visible))
    if len(masks) > MAX_MASKS:
        folder = _heaviest(dict.fromkeys(masks, 1), len(masks) - MAX_MASKS // 2)
        number = f"more than {MAX_MASKS:,}"
        problem = f"can't be kept: what is denied beneath {folder} takes {number} mounts"
        raise _unkept_error(problem, folder, masks, visible, policy)


# --- what is denied ---------------------------------------------------------------------------


def denied(policy: Policy, *, private: Sequence[Path] = ()) -> tuple[str, ...]:
    """Return the paths that are never read or written for cells, by every name.

    They are denied whatever the roots are, by the policy or by the host.
    """
    return tuple(dict.fromkeys((*_denied(policy, private, {}), *spellings(package_folder()))))


def denied_paths(policy: Policy) -> tuple[str, ...]:
    """Return the paths that the policy itself denies, by every name. Patterns are left out."""
    return _by_every_name(policy.read_deny_paths, {})


def _denied(policy: Policy, private: Iterable[Path], fill: dict[str, str]) -> tuple[str, ...]:
    """Return the paths that the policy denies, and those private to this machine and the host."""
    return _by_every_name(
        (*policy.read_deny_paths, *private_places(os.environ), *map(str, private)), fill
    )


def _by_every_name(paths: Iterable[str], fill: dict[str, str]) -> tuple[str, ...]:
    """Return paths by every name, without patterns.

    Files that match a pattern were looked up before, and are among the private paths.
    """
    plain = (path for path in paths if not is_pattern(path))
    named = [os.path.expanduser(filled(path, fill)) for path in plain]
    return tuple(dict.fromkeys(form for path in named for form in spellings(path)))


def filled(path: str, fill: dict[str, str]) -> str:
    """Return a path with its placeholder replaced by the folder that it stands for."""
    for placeholder, folder in fill.items():
        if path.startswith(placeholder):
            return folder + path.removeprefix(placeholder)
    return path


def roots(paths: Iterable[str], fill: dict[str, str]) -> tuple[str, ...]:
    """Return those of a policy's roots that exist, with their placeholders replaced."""
    return standing(filled(path, fill) for path in paths)


def check_writable(paths: Iterable[str], denied: Sequence[str], policy: Policy, key: str) -> None:
    """Raise PolicyError if the host, too, may not write to one of these roots for cells."""
    unwritable = _never_writable(denied, tuple(interpreter()))
    for path in paths:
        _refuse_writable(path, unwritable, policy, key)


def _never_writable(denied: Sequence[str], libraries: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return the places that no cell may write to, each with the reason and a remedy."""
    programs = tuple(started_unconfined(libraries))
    never = []
    for path in (*denied, *(link for link, _ in links(private_places(os.environ)))):
        why = "can't be kept: what is writable is readable, and this holds a denied path"
        never.append((path, why, f"Choose a folder without {path} in it."))
    for path in (*canonical(programs), *(link for link, _ in links(programs))):
        remedy = "Choose a folder without the Python environment, cellblock or kernelspecs in it."
        never.append((path, f"cells could change what runs unconfined: {path}", remedy))
    path = package_folder()
    why = "cells could change packages that other kernels import"
    never.append((path, why, f"Choose a folder without {path} in it."))
    return never


def _refuse_writable(
    root: str,
    never: Iterable[tuple[str, str, str]],
    policy: Policy,
    key: str,
    *,
    ours: bool = False,
) -> None:
    """Raise PolicyError for a root that contains one of these places, or lies in one.

    A root that is ``ours`` (the scratch folder) may lie in one.
    """
    for path, why, remedy in never:
        if within(path, root) or (within(root, path) and not ours):
            raise policy.error(why, key, root, remedy)


def refuse_denied(root: str, denied: Sequence[str], policy: Policy, key: str) -> None:
    """Raise PolicyError if ``root`` lies in a denied path, or is one."""
    for path in denied:
        if within(root, path):
            problem = "this root lies in a place that is never readable"
            remedy = f"Remove the root, or {path} from read_deny_paths if it stands there."
            raise policy.error(problem, key, root, remedy)


def cut_out(root: str, denied: Sequence[str], policy: Policy) -> tuple[str, ...]:
    """Return the paths to grant so that ``root`` is readable, but no denied path in it.

    Raises PolicyError if the root itself is denied, or if that takes too many paths.
    """
    refuse_denied(root, denied, policy, "filesystem_read_roots")
    granted: list[str] = []
    #: For each folder that was cut, how many entries were granted, and a denied path beneath it.
    cut: dict[str, tuple[int, str]] = {}
    rules = 0
    # Paths still to grant, each with the denied paths in it. This is not recursive, because folders
    # may be nested more deeply than Python's stack allows.
    pending = [(root, [path for path in denied if within(path, root)])]
    while pending:
        folder, inside = pending.pop()
        if not inside:
            granted.append(folder)
            continue
        leading: dict[str, list[str]] = {}
        begin = len(folder.rstrip("/")) + 1
        for path in inside:
            end = path.find("/", begin)
            leading.setdefault(path[begin : end if end >= 0 else None], []).append(path)
        entries = entries_of(folder, MAX_EXPANSION + len(leading) + 1)
        count = max(0, len(entries) - len(leading))
        cut[folder] = count, inside[0]
        rules += count
        if rules > MAX_EXPANSION:
            raise _too_many(root, cut, policy)
        for entry in reversed(entries):  # a folder that we can't list, the guest can't read
            # A link is left out: its target is granted if that lies beneath a root itself.
            deeper = leading.get(entry.name, [])
            if not entry.is_symlink() and entry.path not in deeper:
                pending.append((entry.path, deeper))
    return tuple(granted)


def _too_many(root: str, cut: Mapping[str, tuple[int, str]], policy: Policy) -> PolicyError:
    """Return the error about the largest of the folders that were ``cut``, with a remedy."""
    folder = max(cut, key=lambda name: cut[name][0])
    count, denied_path = cut[folder]
    while not folder.isprintable():
        folder = os.path.dirname(folder)
    number = f"{count:,}" if count <= MAX_EXPANSION else f"more than {MAX_EXPANSION:,}"
    problem = (
        f"can't be kept: {folder} has {number} entries beside it, too many to be granted singly"
    )
    return _unkept_error(problem, folder, (denied_path,), (root,), policy)


def _unkept_error(
    problem: str, folder: str, denied: Iterable[str], named: Iterable[str], policy: Policy
) -> PolicyError:
    """Return the error about a ``folder`` in which too many paths must be granted or denied singly.

    The remedy is to deny the whole folder, unless one of the policy's roots (``named``) lies in it
    or nothing in it is denied.
    """
    inside = [path for path in denied if within(path, folder)]
    if not inside:
        remedy = f"Name folders as filesystem_read_roots, not what is in them: {folder}."
        return policy.error(problem, "filesystem_read_roots", folder, remedy)
    if any(within(root, folder) for root in named):
        moved = inside[0] if inside[0].isprintable() else ascii(inside[0])
        moved += ", and all else that is denied there," if len(inside) > 1 else ""
        remedy = (
            f"Move {moved} to another folder, or name what cells read of {folder} as"
            " filesystem_read_roots."
        )
    else:
        line = f"add.read_deny_paths = [{json.dumps(folder, ensure_ascii=False)}]"
        remedy = f"Deny all of that folder: {line}"
    return policy.error(problem, "read_deny_paths", inside[0], remedy)


# --- canonical paths --------------------------------------------------------------------------


def canonical(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the existing paths with links resolved, without those beneath another of them."""
    return outermost(real(path) for path in paths if os.path.exists(path))


def standing(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the existing paths of a policy, without those beneath another of them.

    They are canonical already and not resolved again, because cells may have put links there since.
    """
    return outermost(path for path in paths if any(identity(path)))


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Return canonical paths sorted, without those that lie beneath another of them."""
    outer: list[str] = []
    # Sorted with a slash at the end, a folder is followed directly by all that lies beneath it. So
    # a path can lie only in the folder that was kept last.
    for path in sorted(set(paths), key=lambda path: f"{path.rstrip('/')}/"):
        if not outer or not within(path, outer[-1]):
            outer.append(path)
    return tuple(sorted(outer))


def spellings(path: str) -> tuple[str, ...]:
    """Return a denied path as it is named and as it resolves. Either may lie beneath a root."""
    folder, name = os.path.split(path)
    return tuple(dict.fromkeys((real(path), os.path.join(real(folder), name))))


def real(path: str) -> str:
    """Return ``path`` without links, spelled as it is stored, because profiles match that."""
    resolved = os.path.realpath(path)
    return _as_macos_stores(resolved) if _LOOSE_NAMES else resolved


def _as_macos_stores(path: str) -> str:
    """Return a path as macOS stores it (fcntl(2), F_GETPATH), or unchanged if it doesn't exist."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return path
    try:
        answer: bytes = fcntl.fcntl(fd, getattr(fcntl, "F_GETPATH", 50), bytes(_MAX_PATH_BYTES))
    finally:
        os.close(fd)
    return os.fsdecode(answer.rstrip(b"\0"))


# --- paths that every guest may read, and paths that no guest may -------------------------------
#
# Readable by default are the interpreter, what it can import, shared libraries, time zones,
# locales, fonts, and the few facts about the machine that numeric libraries look up.

SystemPath = tuple[str, str]

#: Each path with the reason. Paths that don't exist are skipped.
SYSTEM: Final[tuple[SystemPath, ...]] = (
    ("/etc/fonts", "font configuration"),
    ("/etc/ld.so.cache", "shared libraries"),
    ("/etc/localtime", "the time zone"),
    ("/etc/mime.types", "mimetypes"),
    ("/etc/os-release", "which system this is: platform"),
    ("/etc/timezone", "the time zone's name"),
    ("/lib", "shared libraries"),
    ("/lib32", "shared libraries"),
    ("/lib64", "shared libraries"),
    ("/proc/cpuinfo", "how many processors numeric libraries may use"),
    ("/proc/meminfo", "how much memory they may use"),
    ("/sys/devices/system/cpu", "as /proc/cpuinfo"),
    ("/sys/fs/cgroup/cpu.max", "as /proc/cpuinfo"),
    ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "as /proc/cpuinfo"),
    ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "as /proc/cpuinfo"),
    ("/sys/devices/system/node", "as /proc/cpuinfo"),
    ("/usr/lib", "shared libraries"),
    ("/usr/lib32", "shared libraries"),
    ("/usr/lib64", "shared libraries"),
    ("/usr/local/lib", "shared libraries"),
    ("/usr/local/share/fonts", "fonts"),
    ("/usr/share/fontconfig", "font configuration"),
    ("/usr/share/fonts", "fonts"),
    ("/usr/share/locale", "locales"),
    ("/usr/share/mime", "mimetypes"),
    ("/usr/share/zoneinfo", "time zones"),
    ("/var/cache/fontconfig", "fonts"),
)

#: With network_access, whether True or a list: names of ports and protocols, and certificates.
CERTIFICATES: Final[tuple[SystemPath, ...]] = (
    ("/etc/ca-certificates", "certificates"),
    ("/etc/pki/ca-trust", "certificates"),
    ("/etc/pki/tls", "certificates"),
    ("/etc/protocols", "protocol names"),
    ("/etc/services", "port names"),
    ("/etc/ssl", "certificates"),
    ("/usr/share/ca-certificates", "certificates"),
)

#: With programs, which may reach each other, and with a list of addresses or ports: what names mean
#: in the session's own network.
LOCAL: Final[tuple[SystemPath, ...]] = (
    ("/etc/gai.conf", "address selection"),
    ("/etc/host.conf", "name resolution"),
    ("/etc/hosts", "what localhost is, and where listed names are"),
    ("/etc/nsswitch.conf", "name resolution"),
    ("/etc/protocols", "protocol names"),
    ("/etc/services", "port names"),
)

#: With unrestricted network_access: where names are looked up. For a list the host does that.
NETWORK: Final[tuple[SystemPath, ...]] = (
    ("/etc/gai.conf", "address selection"),
    ("/etc/host.conf", "name resolution"),
    ("/etc/hosts", "name resolution"),
    ("/etc/nsswitch.conf", "name resolution"),
    ("/etc/resolv.conf", "name resolution"),
)

#: With subprocess_execution: what may be started, besides the interpreter.
PROGRAMS: Final[tuple[SystemPath, ...]] = (
    ("/bin", "programs"),
    ("/usr/bin", "programs"),
    ("/usr/local/bin", "programs"),
    ("/sbin", "ldconfig, by which ctypes finds libraries"),
    ("/usr/sbin", "as /sbin"),
    ("/usr/libexec", "what programs start: compilers' stages, git's commands"),
    ("/usr/local/libexec", "as /usr/libexec"),
)

#: With subprocess_execution: files that programs need to work properly.
OF_PROGRAMS: Final[tuple[SystemPath, ...]] = (
    ("/etc/bash.bashrc", "shells"),
    ("/etc/debian_version", "which system this is"),
    ("/etc/groff", "man"),
    ("/etc/ImageMagick-6", "ImageMagick"),
    ("/etc/ImageMagick-7", "ImageMagick"),
    ("/etc/inputrc", "shells"),
    ("/etc/java", "Java, which does not start without"),
    *((f"/etc/java-{version}-openjdk", "as /etc/java") for version in (8, 11, 17, 21, 25)),
    ("/etc/julia", "Julia"),
    ("/etc/ld.so.conf", "linkers"),
    ("/etc/ld.so.conf.d", "linkers"),
    ("/etc/lsb-release", "which system this is"),
    ("/etc/magic", "file(1)"),
    ("/etc/man_db.conf", "man, which shows no page without"),
    ("/etc/manpath.config", "as /etc/man_db.conf"),
    ("/etc/OpenCL", "OpenCL's drivers"),
    ("/etc/openmpi", "mpirun"),
    ("/etc/papersize", "TeX"),
    ("/etc/perl", "modules of Perl, in which git and autoconf are written"),
    ("/etc/pki/tls/openssl.cnf", "openssl, which makes no certificate without"),
    ("/etc/profile", "shells"),
    ("/etc/R", "R"),
    ("/etc/redhat-release", "which system this is"),
    ("/etc/ssl/openssl.cnf", "as /etc/pki/tls/openssl.cnf"),
    ("/etc/terminfo", "terminals"),
    ("/etc/texmf", "TeX"),
    ("/etc/xml", "xmllint, xsltproc"),
    ("/usr/include", "headers"),
    ("/usr/local/include", "headers"),
    ("/var/cache/man", "apropos, whatis"),
    ("/var/lib/texmf", "TeX's formats"),
)

#: With subprocess_execution: the data of programs, such as git's templates, the modules of CMake
#: and Perl, descriptions of terminals. Kernelspecs in these folders are left out.
SHARED_DATA: Final = ("/usr/share", "/usr/local/share")

#: Readable and writable character devices that keep nothing.
DEVICES: Final = ("/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")

#: The files in /proc, beside processes, that programs and libraries look up, if cells may read
#: /proc.
PROC_FILES: Final[tuple[SystemPath, ...]] = (
    ("/proc/cgroups", "limits of memory and processors"),
    ("/proc/cpuinfo", "as without programs"),
    ("/proc/filesystems", "df, mount"),
    ("/proc/loadavg", "how busy the machine is"),
    ("/proc/meminfo", "as without programs"),
    ("/proc/stat", "processor time, and when the machine was started: ps, psutil"),
    ("/proc/sys/fs/file-max", "how many files may be open"),
    ("/proc/sys/fs/nr_open", "how many files may be open"),
    ("/proc/sys/fs/pipe-max-size", "how large a pipe may be"),
    ("/proc/sys/kernel/cap_last_cap", "libcap"),
    ("/proc/sys/kernel/ngroups_max", "id, sudo"),
    ("/proc/sys/kernel/osrelease", "as uname"),
    ("/proc/sys/kernel/ostype", "as uname"),
    ("/proc/sys/kernel/pid_max", "how wide ps writes numbers"),
    ("/proc/sys/kernel/threads-max", "how many threads there may be"),
    ("/proc/sys/kernel/version", "as uname"),
    ("/proc/sys/vm/max_map_count", "databases, Java"),
    ("/proc/sys/vm/overcommit_memory", "jemalloc, mimalloc, Redis"),
    ("/proc/uptime", "ps, uptime"),
    ("/proc/version", "as uname"),
    ("/proc/vmstat", "psutil, vmstat"),
)

#: Package stores, readable as a whole for an interpreter that is installed in one.
STORES: Final = ("/gnu/store", "/nix/store")


def interpreter() -> Iterator[str]:
    """Yield the paths that this interpreter imports from: its libraries, packages and cellblock.

    Not all of ``sys.path``, which may contain the working folder, a script's folder, or through a
    .pth file a whole project. Of these, only what installers put there is readable, and what the
    policy names (``package_paths``).
    """
    for prefix in dict.fromkeys((sys.prefix, sys.exec_prefix, sys.base_prefix)):
        yield f"{prefix}/lib"
        yield f"{prefix}/lib64"
        yield from _shared_entries(f"{prefix}/share")
        yield f"{prefix}/pyvenv.cfg"
    yield from installed.package_paths()
    yield str(Path(__file__).resolve().parent.parent)
    for store in STORES:
        if sys.base_prefix.startswith(f"{store}/"):
            yield store


def _shared_entries(folder: str) -> Iterator[str]:
    """Yield ``folder``, or its entries without Jupyter's if there is such a folder in it.

    Of Jupyter's folder only nbconvert's templates are yielded: kernelspecs may have credentials in
    their environment.
    """
    jupyter = Path(folder, "jupyter")
    if not jupyter.is_dir():
        yield folder
        return
    yield from (str(path) for path in sorted(Path(folder).iterdir()) if path != jupyter)
    yield str(jupyter / "nbconvert")


def package_paths(names: Iterable[str], granted: Iterable[str]) -> Iterator[str]:
    """Yield the paths of the packages ``names`` that don't lie in the folders ``granted``.

    Editable installs and .pth files lead to such places. Only the package is granted then, not its
    project.
    """
    granted_roots = tuple(granted)
    for folder in sys.path:
        real = os.path.realpath(folder)
        if not folder.startswith("/") or any(within(real, root) for root in granted_roots):
            continue
        try:
            entries = set(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            for entry in (name, f"{name}.py", f"{name}.libs"):
                if entry in entries and os.path.exists(path := os.path.join(folder, entry)):
                    yield path


def interpreter_programs() -> Iterator[str]:
    """Yield the folders of this interpreter's executables."""
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)):
        yield f"{prefix}/bin"


def interpreter_headers() -> Iterator[str]:
    """Yield what compilers need of this interpreter: its headers, and those of conda's system."""
    yield sysconfig.get_path("include")
    yield sysconfig.get_path("platinclude")
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)):
        yield f"{prefix}/include"
        yield f"{prefix}/libexec"
        yield from glob.glob(f"{glob.escape(prefix)}/*-conda*-linux-gnu")


def started_unconfined(libraries: Iterable[str]) -> Iterator[str]:
    """Yield the paths that other processes of the user run or load, such as later kernels.

    ``libraries`` are the paths that ``interpreter`` yields.
    """
    yield sys.executable
    yield from libraries
    yield from interpreter_programs()
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)):
        yield f"{prefix}/share/jupyter"
        yield f"{prefix}/etc/jupyter"


#: On macOS, Jupyter's data and the user's keychains lie in other places.
_MACOS: Final = sys.platform == "darwin"

#: Environment variables with private folders, or lists of these.
_JUPYTER_FOLDERS: Final = (
    "IPYTHONDIR",
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_CONFIG_PATH",
    "JUPYTER_RUNTIME_DIR",
    "XDG_RUNTIME_DIR",
)
#: Environment variables with folders, perhaps in a project, in which only some entries are private.
_JUPYTER_DATA: Final = ("JUPYTER_DATA_DIR", "JUPYTER_PATH")
_PRIVATE_DATA: Final = ("kernels", "nbsignatures.db", "notebook_secret", "runtime")


def private_places(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths that no guest may read, whatever the policy says.

    These are other processes (/proc), devices, run-time sockets, and Jupyter's own folders, because
    connection files have the keys of all running kernels, and the configuration has the server's
    tokens.
    """
    home = os.path.expanduser("~")
    data = environ.get("XDG_DATA_HOME") or f"{home}/.local/share"
    config = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    yield from ("/proc", "/dev", "/run", "/sys")
    # Where jupyter_core.paths looks. Its run-time folder is in the data folder; kernelspecs, which
    # are there as well, may have credentials in their environment.
    yield from (f"{data}/jupyter", f"{home}/.jupyter", f"{config}/jupyter", f"{home}/.ipython")
    if _MACOS:
        yield from (f"{home}/Library/Jupyter", f"{home}/Library/Keychains")
    for name in _JUPYTER_FOLDERS:
        yield from _paths_in_variable(environ, name)
    for name in _JUPYTER_DATA:
        for folder in _paths_in_variable(environ, name):
            yield from (f"{folder}/{entry}" for entry in _PRIVATE_DATA)


def _paths_in_variable(environ: Mapping[str, str], name: str) -> Iterator[str]:
    return filter(None, environ.get(name, "").split(os.pathsep))
