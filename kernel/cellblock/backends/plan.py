"""From a policy to what guests must lock (``make_plan``) and their zygote sees (``make_view``).

The host decides all of this before a guest exists. It works on canonical paths, without links. A
policy's paths are canonical already and are not resolved again, since cells may have put links in
their place; the machine's own are resolved here. The guest follows no link when it grants them.

Landlock has no deny rule, so a denied path is left out (``cut_out``): a root with one beneath it is
replaced by that root's entries, all but the one that leads there, level by level. So entries that
are made later directly in such a folder are not readable, and the folder can't be listed. A hard
link to a denied file elsewhere beneath a root is not recognised, which is disclosed as a hole of
``read_deny_paths``. A root with nothing beneath it but what is denied by its name can
be listed: names of secrets are no secrets.
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

#: Fields of a policy that are limits of the guest's own.
GUEST_LIMITS: Final = Limits.__struct_fields__
#: Rules that one root may become. Landlock takes 32 µs for each whenever a guest starts anew, and a
#: kernel's first start about 100 µs, with looking for them and sending them: 20,000 take 2 s.
MAX_EXPANSION: Final = 20_000
#: Bytes of all paths of a plan: a sixth of a frame (``wire.frames.MAX_FRAME``), in which it is sent
#: beside inputs and an environment. 20,000 rules take half of that where a path has a hundred
#: bytes; it may have 4,096.
MAX_PLAN_BYTES: Final = 4 * 2**20
#: Denied paths that are mounted over. bwrap takes 9,000 words, three for each of these, and the OS
#: kernel longer for each the more there are: six seconds for 2,000.
MAX_MASKS: Final = 2_500

#: Libraries measure processes there: readable where it shows those of a PID namespace alone. No
#: rule of Landlock's tells processes to come from all else that is there: the backend leaves
#: ``PROC_FILES`` of that.
PROC: Final = "/proc"
#: Bytes of shared memory where memory has no limit.
_LEAST_SHM: Final = 64 * 2**20

#: Above ``scratch_max_bytes`` by this part, and this many bytes, there is no time left for an
#: interrupt.
_FAR_PART, _FAR_BYTES = 4, 64 * 2**20

#: What a zygote takes besides its guests, in bytes and in threads, those of ``preload`` too.
_ZYGOTE_BYTES: Final = 512 * 2**20
_ZYGOTE_TASKS: Final = 32

#: macOS's file systems find a name in any case and in any form of Unicode.
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
    """Return what the guest must lock under ``policy``; if ``pooled``, with others of a zygote's.

    ``scratch`` and ``project``, both canonical, stand for ``{scratch}`` and ``{project}`` where the
    policy still has them. ``private`` are places of the host's own (connection file, audit log)
    that stay unreadable whatever the policy says. A backend that neither locks nor wraps gets an
    empty plan. Raises PolicyError for a policy that can't be kept, also where that takes a plan of
    more than ``MAX_PLAN_BYTES``: this is the one place that bounds what is sent of it.
    """
    if not (backend.locks or backend.wraps):
        return Plan()
    fill = {"{scratch}": str(scratch), "{project}": str(project)}
    hiding = Plan(layers=layers)
    every = _denied(policy, private, fill)
    denied = hiding.not_hidden(every)
    libraries = tuple(interpreter())
    write_roots = roots(policy.filesystem_write_roots, fill)
    never = _never_writable(denied, libraries)
    for root in write_roots:
        # The scratch folder may lie in a run-time folder that is otherwise private.
        ours = within(root, fill["{scratch}"])
        _refuse_writable(root, never, policy, "filesystem_write_roots", ours=ours)
    staged: tuple[str, ...] = ()
    read = roots(policy.filesystem_read_roots, fill)
    for root in roots(policy.filesystem_staged_roots, fill):
        laid = any(within(root, layer.root) for layer in layers)
        if laid and any(within(root, other) for other in read):
            # What is denied and not hidden, as in what Python imports from, is cut out of it.
            staged += cut_out(root, denied, policy)
    own = policy.subprocess_execution and backend.namespaces
    shared = own or (policy.subprocess_execution and bool(layers))
    own_mounts = pooled and own and not layers and backend.separates_sessions
    # Else they would share a network.
    own_mounts = own_mounts and not (has_list(policy) or policy.ports)
    readable = _readable(policy, fill, denied, libraries)
    plan = Plan(
        read_roots=(*readable, *((PROC,) if own else ())),
        listed=tuple(root for root in read if _can_be_listed(root, denied, policy)),
        write_roots=(*write_roots, *((SHARED_MEMORY,) if shared else ())),
        device_files=canonical(DEVICES),
        devices=_devices(policy, backend),
        staged_roots=staged,
        layers=layers,
        apart=_are_apart(read, write_roots, layers, fill["{scratch}"]),
        # Else bubblewrap has mounted one for all guests of the zygote.
        shared_memory=_shared_memory(policy) if shared and (own_mounts or not own) else 0,
        own_mounts=own_mounts,
        network=policy.network_access is True,
        # No lock tells hosts apart: those of the list are all that there is in guests' network.
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
    named = (*read, *write_roots, *(layer.root for layer in layers))
    _refuse_large(plan, policy, every, named)
    return plan


def _devices(policy: Policy, backend: Backend) -> tuple[Device, ...]:
    """Return the devices that guests have here. Raises PolicyError for one that nobody grants."""
    if not policy.devices:
        return ()
    from cellblock.backends import devices  # noqa: PLC0415 - most policies have none

    found = devices.granted(policy)
    return found if backend.grants_devices else ()


def _limits(policy: Policy, *, staged: bool, kept: bool, memory: int) -> Limits:
    """Return what the guest limits by itself.

    An overlay copies a whole file of the project when a cell opens it for writing, where nobody
    sees it until that is done. But Linux holds the process to its limit on files meanwhile. So
    where cells write to nothing but layers and what is ``kept`` in the scratch folder, no file may
    be larger than what they may have there altogether, or in the ``memory`` that processes share.
    """
    limits = {field: getattr(policy, field) for field in GUEST_LIMITS}
    largest, most = policy.max_file_size, policy.scratch_max_bytes
    if staged and kept and most is not None:
        end = max(scratch_end(most), memory)
        limits["max_file_size"] = end if largest is None else min(largest, end)
    return Limits(**limits)


def scratch_end(bound: int) -> int:
    """Return the bytes in the scratch folder, for a bound, with which a cell is killed at once."""
    return bound + max(bound // _FAR_PART, _FAR_BYTES)


def _sockets(policy: Policy, plan: Plan, backend: Backend) -> dict[str, Any]:
    """Return whether the programs of a session reach each other, by which sockets, and who enters.

    A zygote that lays layers has namespaces, and makes one for the network with them. A Unix socket
    is named by a path, which no lock looks at: so there must be nobody else's to name.
    """
    loopback = policy.subprocess_execution and not policy.network_access
    loopback = loopback and (backend.namespaces or bool(plan.layers))
    loopback = loopback or bool(plan.neighbours)
    # What else the network is for, takes ports that no policy lists.
    alone = not loopback and policy.ports != "any"
    serves = bool(policy.ports) and not backend.why_no_ports()
    loopback = loopback or serves
    bound = policy.ports if serves and alone and isinstance(policy.ports, tuple) else None
    local = loopback and policy.subprocess_execution and backend.namespaces and plan.apart
    return {"loopback": loopback, "local_sockets": local, "serves": serves, "bound": bound}


#: Addresses of the loopback device's own, which listed names have in a session's network.
_MADE_UP: Final = ipaddress.IPv4Address("127.80.0.1")


def _neighbours(policy: Policy, backend: Backend) -> tuple[Neighbour, ...]:
    """Return the listed hosts as guests find them, where they can have a network of their own."""
    if not isinstance(policy.network_access, tuple) or not has_list(policy):
        return ()
    if backend.why_no_list():
        return ()
    listed = [parse_address(entry) for entry in policy.network_access]
    taken = {each.literal for each in listed}
    free = (address for number in count() if (address := _MADE_UP + number) not in taken)
    names = dict.fromkeys(each.host for each in listed if each.literal is None)
    made_up = {name: str(next(free)) for name in names if name != LOCALHOST}
    found = dict[tuple[str, int], Neighbour]()
    for each in listed:
        name = "" if each.literal is not None else each.host
        addresses: Iterable[str] = (made_up.get(each.host, each.host),)
        if name == LOCALHOST:
            addresses = LOOPBACK
        for there in addresses:
            if name or backend.adds_addresses or is_loopback(there):
                neighbour = Neighbour(name=name, address=there, port=each.port)
                found.setdefault((there, each.port), neighbour)
    return tuple(found.values())


def _are_apart(
    read: Iterable[str], written: Iterable[str], layers: Sequence[Layer], scratch: str
) -> bool:
    """Return whether what guests can open is the machine's, scratch, or seen through a layer.

    A layer's files have locks and sockets of their own, which those of the folder below don't see.
    """
    places = (scratch, *(layer.root for layer in layers))
    return all(any(within(root, place) for place in places) for root in (*read, *written))


def _refuse_large(plan: Plan, policy: Policy, denied: Iterable[str], named: Sequence[str]) -> None:
    """Raise PolicyError for a plan that is too large to be sent; ``named`` are its roots."""
    sizes = Counter[str]()
    for path in _paths_of(plan):
        sizes[path] += len(os.fsencode(path))
    total = sizes.total()
    if total > MAX_PLAN_BYTES:
        folder = _heaviest(sizes, total - MAX_PLAN_BYTES // 2)
        number = f"more than {MAX_PLAN_BYTES:,}"
        what = f"can't be kept: to name what is beneath {folder} singly takes {number} bytes"
        raise _unkept(what, folder, denied, named, policy)


def _paths_of(plan: Plan) -> Iterator[str]:
    """Yield every path of a plan that some list of it has."""
    yield from (*plan.read_roots, *plan.write_roots, *plan.staged_roots, *plan.listed)
    for layer in plan.layers:
        yield from (layer.root, layer.folder)
        top = layer.root.rstrip("/")
        for name in (*layer.hidden, *layer.fixed, *layer.covered):
            yield f"{top}/{name}"


def _heaviest(weights: Mapping[str, int], enough: int) -> str:
    """Return the innermost folder beneath which paths weigh ``enough``.

    Its name can be shown, and be written in a policy: or that of a folder above is returned.
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
    """Whether a root was cut around what is denied by its name, and nothing else."""
    beneath = [path for path in denied if within(path, root)]
    names = policy.read_deny_paths
    return bool(beneath) and all(pattern_beneath(path, (root,), names) for path in beneath)


def _readable(
    policy: Policy, fill: dict[str, str], denied: Sequence[str], libraries: Sequence[str]
) -> tuple[str, ...]:
    asked = roots(policy.filesystem_read_roots, fill)
    granted = [path for root in asked for path in cut_out(root, denied, policy)]
    # The policy's own denials count for default roots too; the host's private places are
    # not beneath any of them, except /proc and /sys, of which single files are granted.
    by_policy = [path for path in _spelled(policy.read_deny_paths, fill) if path in denied]
    defaults = canonical(_default_names(policy, libraries))
    packages = canonical(package_paths(policy.allowed_modules, defaults))
    for root in (*defaults, *packages):
        granted += cut_out(root, by_policy, policy)
    return tuple(dict.fromkeys(granted))


def _default_names(policy: Policy, libraries: Iterable[str]) -> list[str]:
    """Return what is readable by default, as it is spelled."""
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
        paths += (path for folder in SHARED_DATA for path in _shared(folder))
    packages = policy.package_library()
    return paths if packages is None else [*paths, packages]


def splits_roots(policy: Policy) -> bool:
    """Whether a denied path lies beneath something readable, so that a root has to be cut."""
    defaults = canonical(_default_names(policy, interpreter()))
    readable = (*standing(policy.filesystem_read_roots), *defaults)
    return any(within(path, root) for path in denied_paths(policy) for root in readable)


def preloaded(policy: Policy, plan: Plan) -> tuple[str, ...]:
    """Return where what a zygote preloads lies, when guests under ``plan`` may not read that."""
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
    """Return what a zygote with a mount namespace of its own is to see, under the same ``plan``.

    Where the plan grants what is beside a denied path, the view has the whole root and masks the
    denied path. Raises PolicyError where that takes more than ``MAX_MASKS``.
    """
    fill = {"{scratch}": str(scratch), "{project}": str(project)}
    asked = roots(policy.filesystem_read_roots, fill)
    named = _default_names(policy, interpreter())
    defaults = canonical(named)
    imported = (*policy.allowed_modules, *_preloaded_packages(policy))
    packages = tuple(package_paths(imported, (*asked, *defaults)))
    shared = SHARED_MEMORY in plan.write_roots

    def laid(path: str) -> bool:
        return any(within(path, layer.root) for layer in plan.layers)

    denied = tuple(path for path in _denied(policy, private, fill) if not laid(path))
    stores = {os.path.dirname(os.path.dirname(layer.folder)) for layer in plan.layers}
    written = (root for root in plan.write_roots if root != SHARED_MEMORY)
    # The zygote's own folder, whether its guests may write there or not.
    writable = outermost((*written, *sorted(stores), str(scratch)))
    # A layer is laid over a whole root. Of one that cells may read a part of by now, Landlock keeps
    # them from the rest.
    laid_over = (layer.root for layer in plan.layers)
    readable = outermost((*asked, *defaults, *canonical(packages), *laid_over))
    if len(denied) > MAX_MASKS:
        _refuse_many_masks(denied, (*readable, *writable), policy)
    return View(
        readable=readable,
        writable=writable,
        # No layer can be laid over a mask (CVE-2021-3732). It hides what is denied, and the zygote
        # covers what is denied since.
        masked=denied,
        devices=(*plan.device_files, *(device.path for device in plan.devices)),
        names=(*named, *packages, str(project), str(scratch)),
        movable=_movable(asked, writable, defaults),
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
    """Return a view of what the interpreter needs, and what is ``writable``: for a probe."""
    names = [*(path for path, _ in SYSTEM), *interpreter()]
    devices = canonical(DEVICES)
    return View(canonical(names), writable, (), devices, tuple(names), staged=bool(writable))


def _movable(
    asked: Sequence[str], writable: Sequence[str], defaults: Sequence[str]
) -> tuple[str, ...]:
    """Return the roots in whose place cells may put something else before they are mounted.

    Not the machine's own, of which a container may have others. Not a root that lies in one that is
    written to: that is not mounted for itself.
    """
    read = (root for root in asked if not any(within(root, other) for other in writable))
    return tuple(
        root
        for root in (*read, *writable)
        if root != "/" and not any(within(root, other) for other in defaults)
    )


def _bounds(policy: Policy, scratch: str) -> Bounds:
    """Return bounds that nothing exceeds that the policy allows.

    A guest may hold an eighth more than it is allowed until the host looks, and the copy from which
    it would be restored holds what the guest has overwritten since.
    """
    files = policy.scratch_max_bytes
    parts = (policy.memory_max_bytes, policy.undo_max_bytes, files)
    guest, *others = (part or 0 for part in parts)
    memory = None if None in parts else guest * 9 // 4 + sum(others) + _ZYGOTE_BYTES
    most = policy.max_processes
    tasks = None if most is None else most + policy.undo_depth + policy.max_branches + _ZYGOTE_TASKS
    return Bounds(scratch, files, memory, tasks)


def is_masked(path: str, shown: Iterable[str]) -> bool:
    """Whether there is something at ``path`` to mask: beneath what is ``shown``, and no link."""
    if os.path.islink(path) or not os.path.exists(path):
        return False
    return any(within(path, root) for root in shown)


def _refuse_many_masks(denied: Sequence[str], shown: Sequence[str], policy: Policy) -> None:
    """Raise PolicyError where more would be mounted over than a wrapper mounts."""
    masks = outermost(path for path in denied if is_masked(path, shown))
    if len(masks) > MAX_MASKS:
        folder = _heaviest(dict.fromkeys(masks, 1), len(masks) - MAX_MASKS // 2)
        number = f"more than {MAX_MASKS:,}"
        what = f"can't be kept: what is denied beneath {folder} takes {number} mounts"
        raise _unkept(what, folder, masks, shown, policy)


# --- what is denied ---------------------------------------------------------------------------


def denied(policy: Policy, *, private: Sequence[Path] = ()) -> tuple[str, ...]:
    """Return what is never read or written for cells, whatever the roots are, by every name."""
    return tuple(dict.fromkeys((*_denied(policy, private, {}), *spellings(package_folder()))))


def denied_paths(policy: Policy) -> tuple[str, ...]:
    """Return what the policy itself denies by its path, by every name."""
    return _spelled(policy.read_deny_paths, {})


def _denied(policy: Policy, private: Iterable[Path], fill: dict[str, str]) -> tuple[str, ...]:
    """Return what the policy denies, and what is private on this machine and of the host's."""
    return _spelled(
        (*policy.read_deny_paths, *private_places(os.environ), *map(str, private)), fill
    )


def _spelled(paths: Iterable[str], fill: dict[str, str]) -> tuple[str, ...]:
    """Return paths by every name. What has a name that is denied is among what is private."""
    plain = (path for path in paths if not is_pattern(path))
    named = [os.path.expanduser(filled(path, fill)) for path in plain]
    return tuple(dict.fromkeys(form for path in named for form in spellings(path)))


def filled(path: str, fill: dict[str, str]) -> str:
    """Return a path with the folder that its placeholder stands for."""
    for placeholder, folder in fill.items():
        if path.startswith(placeholder):
            return folder + path.removeprefix(placeholder)
    return path


def roots(paths: Iterable[str], fill: dict[str, str]) -> tuple[str, ...]:
    """Return those of a policy's roots that exist, with the folders of their placeholders."""
    return standing(filled(path, fill) for path in paths)


def check_writable(paths: Iterable[str], denied: Sequence[str], policy: Policy, key: str) -> None:
    """Raise PolicyError if the host may not write to one of these roots for cells either."""
    never = _never_writable(denied, tuple(interpreter()))
    for path in paths:
        _refuse_writable(path, never, policy, key)


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
    path, why = package_folder(), "cells could change packages that other kernels import"
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
    """Raise PolicyError for a root that holds such a place or, unless it is ours, lies in one."""
    for path, why, remedy in never:
        if within(path, root) or (within(root, path) and not ours):
            raise policy.error(why, key, root, remedy)


def refuse_denied(root: str, denied: Sequence[str], policy: Policy, key: str) -> None:
    """Raise PolicyError if ``root`` lies in what is denied."""
    for path in denied:
        if within(root, path):
            what = "this root lies in a place that is never readable"
            remedy = f"Remove the root, or {path} from read_deny_paths if it stands there."
            raise policy.error(what, key, root, remedy)


def cut_out(root: str, denied: Sequence[str], policy: Policy) -> tuple[str, ...]:
    """Return what to grant so that ``root`` is readable and nothing denied is.

    Raises PolicyError if the root itself is denied, or has too many entries to tell apart.
    """
    refuse_denied(root, denied, policy, "filesystem_read_roots")
    granted: list[str] = []
    #: What was granted in each folder, and a denied path because of which it was cut.
    cut: dict[str, tuple[int, str]] = {}
    rules = 0
    # What is left to grant, each with what is denied in it. No recursion: folders may be nested
    # deeper than Python's stack is.
    left = [(root, [path for path in denied if within(path, root)])]
    while left:
        folder, inside = left.pop()
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
        for entry in reversed(entries):  # what we can't list, the guest can't read
            # A link is granted by what it points to, if that lies beneath a root itself.
            deeper = leading.get(entry.name, [])
            if not entry.is_symlink() and entry.path not in deeper:
                left.append((entry.path, deeper))
    return tuple(granted)


def _too_many(root: str, cut: Mapping[str, tuple[int, str]], policy: Policy) -> PolicyError:
    """Return the error about the largest of the folders that were ``cut``, and what to do."""
    folder = max(cut, key=lambda name: cut[name][0])
    count, denied_path = cut[folder]
    while not folder.isprintable():
        folder = os.path.dirname(folder)
    number = f"{count:,}" if count <= MAX_EXPANSION else f"more than {MAX_EXPANSION:,}"
    what = f"can't be kept: {folder} has {number} entries beside it, too many to be granted singly"
    return _unkept(what, folder, (denied_path,), (root,), policy)


def _unkept(
    what: str, folder: str, denied: Iterable[str], named: Iterable[str], policy: Policy
) -> PolicyError:
    """Return the error about a ``folder`` in which too much is told apart, and what to do.

    To deny the whole folder is enough, unless one of the policy's ``named`` roots lies in it.
    """
    inside = [path for path in denied if within(path, folder)]
    if not inside:
        remedy = f"Name folders as filesystem_read_roots, not what is in them: {folder}."
        return policy.error(what, "filesystem_read_roots", folder, remedy)
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
    return policy.error(what, "read_deny_paths", inside[0], remedy)


# --- canonical paths --------------------------------------------------------------------------


def canonical(paths: Iterable[str]) -> tuple[str, ...]:
    """Return existing paths with links resolved, once each, those beneath another left out."""
    return outermost(real(path) for path in paths if os.path.exists(path))


def standing(paths: Iterable[str]) -> tuple[str, ...]:
    """Return those of a policy's paths, which are canonical, that exist; else as ``canonical``.

    They are not resolved again: cells may have put a link there since.
    """
    return outermost(path for path in paths if any(identity(path)))


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Return canonical paths once each, sorted, those beneath another left out."""
    kept: list[str] = []
    # With a slash at its end, a folder is followed by all that lies beneath it: the last that was
    # kept is the only one in which a path can lie.
    for path in sorted(set(paths), key=lambda path: f"{path.rstrip('/')}/"):
        if not kept or not within(path, kept[-1]):
            kept.append(path)
    return tuple(sorted(kept))


def spellings(path: str) -> tuple[str, ...]:
    """Return a denied path as it is named and as it resolves: either may lie beneath a root."""
    folder, name = os.path.split(path)
    return tuple(dict.fromkeys((real(path), os.path.join(real(folder), name))))


def real(path: str) -> str:
    """Return ``path`` without links, spelled as it is stored: profiles match that spelling."""
    found = os.path.realpath(path)
    return _stored(found) if _LOOSE_NAMES else found


def _stored(path: str) -> str:
    """Return an existing path as macOS spells it (fcntl(2), F_GETPATH); another as it stands."""
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

#: Path and why; absent ones are skipped.
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

#: With network_access, all of it or a list: names of ports, and certificates.
CERTIFICATES: Final[tuple[SystemPath, ...]] = (
    ("/etc/ca-certificates", "certificates"),
    ("/etc/pki/ca-trust", "certificates"),
    ("/etc/pki/tls", "certificates"),
    ("/etc/protocols", "protocol names"),
    ("/etc/services", "port names"),
    ("/etc/ssl", "certificates"),
    ("/usr/share/ca-certificates", "certificates"),
)

#: With programs, which may reach each other, and with a list of addresses: what names mean in a
#: network of the session's own.
LOCAL: Final[tuple[SystemPath, ...]] = (
    ("/etc/gai.conf", "address selection"),
    ("/etc/host.conf", "name resolution"),
    ("/etc/hosts", "what localhost is, and where listed names are"),
    ("/etc/nsswitch.conf", "name resolution"),
    ("/etc/protocols", "protocol names"),
    ("/etc/services", "port names"),
)

#: With all of it: where names are looked up, which the host does for a list.
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

#: With subprocess_execution: what programs read, without which they are half there.
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

#: Likewise, but for kernelspecs in them: what programs bring along, such as git's templates, the
#: modules of CMake and Perl, terminals' descriptions.
SHARED_DATA: Final = ("/usr/share", "/usr/local/share")

#: Readable and writable character devices that keep nothing.
DEVICES: Final = ("/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")

#: Of /proc, beside processes, where cells may read that: what programs and libraries look up.
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
    """Yield what this interpreter imports from: its libraries, site-packages and cellblock.

    Not ``sys.path``: that may hold the working folder, a script's folder, or through a .pth
    file the whole of a project. Of that, what installers put there is readable, and
    ``package_paths`` grants what the policy names.
    """
    for prefix in dict.fromkeys((sys.prefix, sys.exec_prefix, sys.base_prefix)):
        yield f"{prefix}/lib"
        yield f"{prefix}/lib64"
        yield from _shared(f"{prefix}/share")
        yield f"{prefix}/pyvenv.cfg"
    yield from installed.package_paths()
    yield str(Path(__file__).resolve().parent.parent)
    for store in STORES:
        if sys.base_prefix.startswith(f"{store}/"):
            yield store


def _shared(folder: str) -> Iterator[str]:
    """Yield ``folder``, or what is in it where kernelspecs are: their env may hold credentials.

    Of Jupyter's folder nbconvert's templates alone.
    """
    jupyter = Path(folder, "jupyter")
    if not jupyter.is_dir():
        yield folder
        return
    yield from (str(path) for path in sorted(Path(folder).iterdir()) if path != jupyter)
    yield str(jupyter / "nbconvert")


def package_paths(names: Iterable[str], granted: Iterable[str]) -> Iterator[str]:
    """Yield the paths of the packages ``names`` that do not lie in the folders ``granted``.

    Editable installs and .pth files lead to such places: the package alone is granted, not its
    project.
    """
    known = tuple(granted)
    for folder in sys.path:
        real = os.path.realpath(folder)
        if not folder.startswith("/") or any(within(real, root) for root in known):
            continue
        try:
            there = set(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            for entry in (name, f"{name}.py", f"{name}.libs"):
                if entry in there and os.path.exists(path := os.path.join(folder, entry)):
                    yield path


def interpreter_programs() -> Iterator[str]:
    """Yield where this interpreter's executables are."""
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)):
        yield f"{prefix}/bin"


def interpreter_headers() -> Iterator[str]:
    """Yield what compilers need of this interpreter: its headers, and conda's own system's."""
    yield sysconfig.get_path("include")
    yield sysconfig.get_path("platinclude")
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)):
        yield f"{prefix}/include"
        yield f"{prefix}/libexec"
        yield from glob.glob(f"{glob.escape(prefix)}/*-conda*-linux-gnu")


def started_unconfined(libraries: Iterable[str]) -> Iterator[str]:
    """Yield what other processes of the user run or load, this kernel's next start among them.

    ``libraries`` are what ``interpreter`` yields.
    """
    yield sys.executable
    yield from libraries
    yield from interpreter_programs()
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)):
        yield f"{prefix}/share/jupyter"
        yield f"{prefix}/etc/jupyter"


#: Where Jupyter's data, configuration aside, and the user's keychains are in another place.
_MACOS: Final = sys.platform == "darwin"

#: Variables that move folders, or lists of them, that are private.
_JUPYTER_FOLDERS: Final = (
    "IPYTHONDIR",
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_CONFIG_PATH",
    "JUPYTER_RUNTIME_DIR",
    "XDG_RUNTIME_DIR",
)
#: And those that name folders, maybe a project's, of which some is private.
_JUPYTER_DATA: Final = ("JUPYTER_DATA_DIR", "JUPYTER_PATH")
_PRIVATE_DATA: Final = ("kernels", "nbsignatures.db", "notebook_secret", "runtime")


def private_places(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths that no guest may read, whatever the policy says.

    These are other processes (/proc), devices, run-time sockets, and Jupyter's own folders:
    connection files hold the keys of all running kernels, configuration the server's tokens.
    """
    home = os.path.expanduser("~")
    data = environ.get("XDG_DATA_HOME") or f"{home}/.local/share"
    config = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    yield from ("/proc", "/dev", "/run", "/sys")
    # Where jupyter_core.paths looks, its run-time folder in the data folder; kernelspecs, in the
    # latter as well, may carry credentials in their env.
    yield from (f"{data}/jupyter", f"{home}/.jupyter", f"{config}/jupyter", f"{home}/.ipython")
    if _MACOS:
        yield from (f"{home}/Library/Jupyter", f"{home}/Library/Keychains")
    for name in _JUPYTER_FOLDERS:
        yield from _listed(environ, name)
    for name in _JUPYTER_DATA:
        for folder in _listed(environ, name):
            yield from (f"{folder}/{entry}" for entry in _PRIVATE_DATA)


def _listed(environ: Mapping[str, str], name: str) -> Iterator[str]:
    return filter(None, environ.get(name, "").split(os.pathsep))
