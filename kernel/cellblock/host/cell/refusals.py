"""Whether the policy was behind a call that failed in a cell, and what would allow the call.

The guest reports the call that failed, its target and its errno (``FailedCall``), or what a cell
looked for in vain (``NotThere``). Both are a hostile process's word, so they are taken as a
question: would the policy, and the plan of the guest's locks, forbid such a call? ``judge`` and its
siblings answer with a ``Refusal``, in words of the host's own, or with None. No path outside the
cells' own roots is looked up for that: a card must not reveal what exists there.

``judge`` tries the functions for one kind of call in their order; the first ``Refusal`` counts.
``advised`` adds what the source check says about the cell, under policies in which that check
refuses nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import re
from typing import TYPE_CHECKING, Final

import msgspec

from cellblock.analysis import analyse, transform
from cellblock.analysis.analyser import as_written
from cellblock.analysis.findings import list_line
from cellblock.backends import bubblewrap, devices
from cellblock.backends.layers import receives_mounts
from cellblock.backends.plan import check_writable, denied, denied_paths
from cellblock.errors import PolicyError
from cellblock.host.snapshots import memory
from cellblock.policy.devices import DRI, NVIDIA, covers, problem
from cellblock.policy.network import is_loopback, parse_address
from cellblock.policy.paths import pattern_beneath, reads_home_files, within
from cellblock.policy.vocabulary import GIB, MIB, is_size, size_text
from cellblock.render.cards import size, value_words
from cellblock.render.outcomes import Refusal, Remedy, named
from cellblock.wire.messages import FailedCall

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cellblock.host.session.config import SessionConfig
    from cellblock.policy.model import Policy
    from cellblock.wire.messages import NotThere

#: The errors of a call that a lock denies.
_DENIED_ERRNOS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
#: The errors of a call on a path that the policy keeps from cells. The path may also seem to be
#: missing, in use (something is mounted over it), or on another disk.
_ABOUT_PATHS: Final = _DENIED_ERRNOS | {errno.ENOENT, errno.EBUSY, errno.EXDEV}
#: Folders that the OS kernel or the backend mounts: no root in a policy opens them.
_SYSTEM_FOLDERS: Final = ("/proc", "/sys")
#: The machine's own folders, for which no remedy suggests that cells may write there.
_MACHINE_FOLDERS: Final = ("/bin", "/boot", "/dev", "/etc", "/lib", "/run", "/sbin", "/usr", "/var")
#: Bytes of a thread's stack, which count in full from its start (pthread_create(3), RLIMIT_STACK).
_STACK_BYTES: Final = 8 << 20
#: Variables that every shell or desktop session has. A cell that reads them is not told of them.
_SHELLS_OWN: Final = frozenset(
    ("_", "COLORTERM", "DISPLAY", "OLDPWD", "PWD", "SHELL", "SHLVL", "TERM", "WAYLAND_DISPLAY")
)
#: Calls that read .env: of python-dotenv, its IPython extension, environs and python-decouple.
_READS_DOTENV: Final = re.compile(
    r"\b(?:load_dotenv|dotenv_values|find_dotenv|read_env|decouple)\b|^[ \t]*+%dotenv\b",
    re.MULTILINE,
)
#: The calls by which torch, TensorFlow, JAX, CuPy and numba look for a GPU, and ``nvidia-smi``.
_LOOKS_FOR_GPUS: Final = re.compile(
    r"\bcuda\.(?:is_available|device_count|current_device|get_device_name|init|gpus|detect)\b"
    r"|[\"']cuda(?::[0-9]+)?[\"']|\.cuda\(|\blist_physical_devices\b"
    r"|\bjax\.(?:local_)?device(?:s|_count)\b|^[ \t]*+(?:import|from)[ \t]++cupy\b|\bnvidia-smi\b",
    re.MULTILINE,
)
#: Symbolic links that are followed in one path, as by the OS kernel (path_resolution(7)).
_MOST_LINKS: Final = 40
#: The fields that decide what cells may read.
_READING_FIELDS: Final = ("filesystem_read_roots", "read_deny_paths")
#: The ways in which a cell's source names the home folder.
_NAMES_HOME: Final = re.compile(r"~|expanduser|\bhome\(|\bHOME\b")


def judge(call: FailedCall, config: SessionConfig, code: str = "") -> Refusal | None:
    """Return the refusal behind a call that failed; None if the policy was not behind it.

    ``code`` is the cell's source, in which ``_home`` looks for the name of the home folder.
    """
    policy = config.policy
    plan = config.prepare.plan
    if call.kind == "import" or not plan.locks:
        return _import(call, policy)
    match call.kind:
        case "memory":
            return _memory(call, policy)
        case "network":
            return _network(call, config)
        case "signal" | "process" | "thread":
            return _process(call, policy) or _program(call, config, code)
        case "database":
            # SQLite does not say what the OS kernel answered.
            call = msgspec.structs.replace(call, kind="file", errno=errno.EACCES)
    return _of_files(call, config, code)


def _of_files(call: FailedCall, config: SessionConfig, code: str) -> Refusal | None:
    """Return the refusal behind a failed call about a file, or about two."""
    if call.other:
        paths = (call.target, call.other)
        calls = (msgspec.structs.replace(call, target=path, other="") for path in paths)
        return next(filter(None, (_of_files(each, config, code) for each in calls)), None)
    if call.target and call.errno in _ABOUT_PATHS:
        target = beyond_links(os.path.normpath(call.target), config)
        call = msgspec.structs.replace(call, target=target)
    refusals = (
        _limits_of_files(call, config),
        _home(call, config, code),
        _in_scratch(call, config),
        _denied_path(call, config),
        _device(call, config),
        _file(call, config),
    )
    return next(filter(None, refusals), None)


def judge_missing(
    message: NotThere, config: SessionConfig, code: str, environ: Mapping[str, str]
) -> Refusal | None:
    """Return the refusal behind something that a cell looked for in vain, or None.

    Nothing was raised for it: ``os.environ.get`` returned None, a file seemed not to exist, or a
    program failed. ``environ`` is the kernel's own environment, ``code`` the cell's source.
    """
    if not config.prepare.plan.locks:
        return None
    if message.kind in ("argument", "word"):
        return _argument(message, config, code)
    if message.kind in ("file", "folder"):
        return _missing(message, config, code)
    # A variable. Libraries look for many, so only those count that the cell itself names.
    name = message.name
    field = "env_var_access"
    in_cell = message.direct or re.search(rf"\b{re.escape(name)}\b", code)
    withheld = name in environ and name not in (*config.prepare.environment, *_SHELLS_OWN)
    if not (in_cell and withheld and name.isprintable()):
        return None
    remedy = Remedy(list_line(field, [name]), listed=True)
    return Refusal(field, "cells can't read this variable of the kernel", remedy, name)


def judge_programs(addresses: Sequence[str], config: SessionConfig) -> Refusal | None:
    """Return why failed programs could not connect, or None if the policy was not behind it.

    Nobody reports the errno of such a failure. An empty address is one that is not known.
    """
    plan = config.prepare.plan
    refused = dict[str, Refusal]()
    listed = config.policy.network_access
    listed_addresses = listed if isinstance(listed, tuple) else ()
    for address in addresses if plan.locks else ():
        if not address and listed_addresses:
            continue
        is_own = plan.loopback and _names_loopback(address)
        number = errno.ECONNREFUSED if is_own else errno.EHOSTUNREACH
        if refusal := _network(FailedCall("network", number, address), config):
            refused[refusal.asked] = refusal
    if "" in refused or not refused:
        return refused.get("")
    first = next(iter(refused.values()))
    return dataclasses.replace(
        first, remedy=Remedy(list_line(first.field, (*listed_addresses, *refused)))
    )


def _names_loopback(address: str) -> bool:
    try:
        return is_loopback(parse_address(address).host)
    except ValueError:
        return False


def _missing(message: NotThere, config: SessionConfig, code: str) -> Refusal | None:
    """Return the refusal behind a file or folder that a cell looked for in vain."""
    path = beyond_links(os.path.normpath(message.name), config)
    if not os.path.isabs(path) or _is_in(path, (*_SYSTEM_FOLDERS, *_MACHINE_FOLDERS)):
        return None
    if message.kind == "file" and not _is_of_this_machine(path):
        return None
    refusal = _judge_path(path, config, code, seen=message.seen)
    return _of_search(refusal) if refusal is not None and refusal.field in _READING_FIELDS else None


def _argument(message: NotThere, config: SessionConfig, code: str) -> Refusal | None:
    """Return the refusal behind a path among the arguments of a program that failed.

    A plain word without a folder may mean anything. It counts only if ``read_deny_paths`` denies a
    file of that name.
    """
    path = beyond_links(os.path.normpath(message.name), config)
    if not os.path.isabs(path) or not _is_of_this_machine(path):
        return None
    refusal = _judge_path(path, config, code, seen=message.seen, writes=message.writes)
    if refusal is None or (message.kind == "word" and refusal.field != "read_deny_paths"):
        return None
    if message.writes:
        return refusal
    return _of_search(refusal) if refusal.field in _READING_FIELDS else None


def _judge_path(
    path: str, config: SessionConfig, code: str, *, seen: bool, writes: bool = False
) -> Refusal | None:
    """Return the refusal behind a path whose error is not known; each likely error is tried.

    If the cell saw that the path exists (``seen``), it may also be denied or masked.
    """
    errors = (errno.ENOENT, errno.EACCES) if seen or writes else (errno.ENOENT,)
    calls = (FailedCall("file", error, path, writes) for error in errors)
    return next(filter(None, (judge(call, config, code) for call in calls)), None)


def _is_of_this_machine(path: str) -> bool:
    """Return whether the topmost folder of a path exists: otherwise the policy hides nothing.

    A notebook looks for ``/kaggle`` to learn where it runs, and in ``grep /api`` the argument is a
    text. No more than the topmost folder is looked up: a notice must not reveal what exists.
    """
    return os.path.lexists(f"/{path.split('/')[1]}")


def _of_search(refusal: Refusal) -> Refusal:
    """Return the refusal without advice on where cells may write, which a search does not need."""
    if refusal.field != "filesystem_read_roots" or not refusal.remedy.line:
        return refusal
    remedy = dataclasses.replace(refusal.remedy, instead="")
    return dataclasses.replace(refusal, remedy=remedy)


def reads_secrets(code: str) -> bool:
    """Return whether a cell calls a library that looks for a ``.env`` file."""
    return _READS_DOTENV.search(code) is not None


def judge_secrets(code: str, config: SessionConfig) -> Refusal | None:
    """Return why a cell's library does not find the project's ``.env`` file; None if there is none.

    Call this in a thread: it looks in the project, where a cell may keep a folder locked.
    """
    if not reads_secrets(code):
        return None
    env_file = f"{config.project}/.env"
    files = [str(path) for path in config.secrets if path.name.startswith(".env")]
    files += [env_file] if os.path.lexists(env_file) else []
    return judge(FailedCall("file", errno.ENOENT, files[0]), config) if files else None


def looks_for_gpus(code: str) -> bool:
    """Return whether a cell has a library look for a GPU."""
    return _LOOKS_FOR_GPUS.search(code) is not None


def judge_gpus(code: str, config: SessionConfig) -> Refusal | None:
    """Return why a cell's library finds no GPU, if this machine has one; else None.

    The library raises no error. So the cell's source and the host's own look decide, and nothing
    that the guest reports.
    """
    if config.policy.devices or not looks_for_gpus(code):
        return None
    reason = "cells have no GPU, and this machine has one"
    return _ungranted(NVIDIA, reason, config, NVIDIA)


def _device(call: FailedCall, config: SessionConfig) -> Refusal | None:
    """Return the refusal of a device that this machine has and a policy may grant; or None."""
    plan, path = config.prepare.plan, call.target
    granted_devices = (*plan.device_files, *(each.path for each in plan.devices))
    if call.errno not in _ABOUT_PATHS or path in granted_devices or problem(path) is not None:
        return None
    entry = next((name for name in (NVIDIA, DRI) if covers(name, path)), path)
    return _ungranted(entry, "cells can use only the devices that are listed", config, path)


def _ungranted(entry: str, reason: str, config: SessionConfig, device_name: str) -> Refusal | None:
    """Return a refusal if the backend grants devices, and this machine has some of ``entry``."""
    if not (config.chosen.backend.grants_devices and devices.find((entry,)).devices):
        return None
    return Refusal(
        "devices", reason, Remedy(list_line("devices", [entry]), listed=True), device_name
    )


def beyond_links(path: str, config: SessionConfig) -> str:
    """Return the path that ``path`` leads to when symbolic links are followed.

    The guest can't follow a link to a target that is hidden from it. Links are read only in folders
    that cells may read and not write. Nothing outside these is looked at.
    """
    plan = config.prepare.plan
    written = (*plan.write_roots, *(layer.root for layer in plan.layers if layer.kept_in))
    roots = [*plan.read_roots, *(layer.root for layer in plan.layers if not layer.kept_in)]
    for _ in range(_MOST_LINKS):
        root = next((candidate for candidate in roots if within(path, candidate)), None)
        if root is None or _is_in(path, written):
            break
        reached = root
        rest = path[len(root.rstrip("/")) + 1 :].split("/")
        while rest:
            reached = f"{reached.rstrip('/')}/{rest.pop(0)}"
            try:
                target = os.readlink(reached)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR):
                    return path
                continue  # not a link
            path = os.path.normpath("/".join((os.path.dirname(reached), target, *rest)))
            if os.path.isabs(target):
                path = os.path.normpath("/".join((target, *rest)))
            break
        else:
            break
    return path


#: The topic under which the source check explains calls that a field decides about.
_TOPICS: Final = {
    "filesystem_read_roots": "files",
    "filesystem_write_roots": "files",
    "max_processes": "threads",
    "network_access": "network",
    "subprocess_execution": "processes",
}


def advised(refusal: Refusal, code: str, policy: Policy) -> Refusal:
    """Return the refusal with what the source check says about the line that led to it, if any."""
    topic = _TOPICS.get(refusal.field)
    if policy.mode == "safe" or topic is None:
        return refusal
    transformed = transform(code)
    findings = analyse(transformed.source, dataclasses.replace(policy.rules(), language=True))
    for finding in as_written(findings, code, transformed):
        if topic in finding.why:
            advice = f"line {finding.line} has {finding.subject}, which {finding.why}"
            return dataclasses.replace(refusal, advice=advice, rewrite=finding.rewrite)
    return refusal


def _import(call: FailedCall, policy: Policy) -> Refusal | None:
    """Return the refusal of importing a module from the folder that cells run in.

    Where cells are admitted, that file would run without being approved. No lock is behind this
    refusal, and without locks there is no other.
    """
    if call.kind != "import" or policy.admission == "any":
        return None
    reason = "cells can't import modules of the folder that they run in: nobody approved the file"
    instead = "install it as a package beside cellblock, or put what it does into the cell"
    return Refusal("admission", reason, Remedy(instead=instead), call.target)


def _process(call: FailedCall, policy: Policy) -> Refusal | None:
    """Return the refusal of starting a program or thread, or of sending a signal."""
    field = "subprocess_execution"
    if call.kind == "thread":
        return _thread(call, policy)
    if call.errno == errno.EAGAIN:
        return _refusal_by_limit(
            policy, "max_processes", "cells can't have more threads and processes"
        )
    if call.errno not in _DENIED_ERRNOS:
        return None
    if call.kind == "signal":
        return Refusal(field, "cells can signal only their own processes")
    if policy.subprocess_execution:
        return None
    return Refusal(field, "cells can't start programs", Remedy(f"{field} = true"))


def _program(call: FailedCall, config: SessionConfig, code: str) -> Refusal | None:
    """Return the refusal of a program's file, or of the folder that it should start in."""
    if not config.policy.subprocess_execution or not call.target:
        return None
    refusal = _of_files(msgspec.structs.replace(call, kind="file"), config, code)
    # Only fields about reading count. A file that cells may read can still fail to start because
    # it is not a program, and that is not the policy's doing.
    return refusal if refusal is not None and refusal.field in _READING_FIELDS else None


def _thread(call: FailedCall, policy: Policy) -> Refusal | None:
    """Return the refusal of a thread, by the limit on memory or the one on threads.

    The C library does not say which limit it was. The guest guesses (ENOMEM for memory), perhaps
    after other threads had ended. So memory is also named if it has no room for the stacks of as
    many threads as the other limit allows.
    """
    memory = policy.memory_max_bytes
    most = policy.max_processes
    crowded = memory is not None and (most is None or memory < most * _STACK_BYTES)
    if call.errno == errno.ENOMEM or crowded:
        return _refusal_by_limit(
            policy, "memory_max_bytes", "cells and their threads can't hold more memory"
        )
    return _refusal_by_limit(policy, "max_processes", "cells can't have more threads and processes")


def _memory(call: FailedCall, policy: Policy) -> Refusal | None:
    """Return the refusal of memory, with a policy line that has room for what the cell asked for.

    If the machine does not have that much memory, there is no line: it would change nothing.
    """
    limit = policy.memory_max_bytes
    refusal = _refusal_by_limit(policy, "memory_max_bytes", "cells can't hold more memory")
    if limit is None or refusal is None:
        return None
    instead = "del what is large and no longer needed: what cells have made is still there"
    remedy = dataclasses.replace(refusal.remedy, instead=instead)
    # The cell may already hold as much as the limit allows, so its call needs that much more.
    needed = limit + call.size if call.size else 2 * limit
    total = memory.total()
    if needed > total:
        instead = f"this machine has {size(total)} of memory: work on parts of the data"
        remedy = Remedy(instead=instead)
    elif call.size:
        remedy = Remedy(_policy_line("memory_max_bytes", needed), instead=instead)
    size_asked = f"{size(call.size)} more" if call.size else ""
    return dataclasses.replace(refusal, remedy=remedy, asked=size_asked)


def _policy_line(field: str, value: int) -> str:
    """Return the policy line that sets a limit; sizes are rounded up to a whole unit."""
    if not is_size(field):
        return f"{field} = {value:_}"
    unit = next(unit for unit in (GIB, MIB, 1) if value >= unit)
    return f'{field} = "{size_text(-(-value // unit) * unit)}"'


def _refusal_by_limit(policy: Policy, field: str, reason: str) -> Refusal | None:
    """Return the refusal by a limit, with the policy line that doubles it; None without a limit.

    ``reason`` is the beginning of a sentence, to which this adds "than" and the limit's value.
    """
    value = getattr(policy, field)
    if value is None:
        return None
    reason = f"{reason} than {value_words(field, value)}"
    return Refusal(field, reason, Remedy(_policy_line(field, 2 * value), raises=True))


#: The errors of connections within the session's own network. A connection that leads out of it
#: fails with others.
_AMONG_THEMSELVES: Final = frozenset(
    {
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EADDRINUSE,
        errno.EADDRNOTAVAIL,
        errno.EPIPE,
        errno.ENOTCONN,
        errno.ETIMEDOUT,
    }
)


#: The errors of connections to an address that is not listed: there is no route to it.
_KEPT_AWAY: Final = frozenset({*_DENIED_ERRNOS, errno.ENETUNREACH, errno.EHOSTUNREACH})


def _network(call: FailedCall, config: SessionConfig) -> Refusal | None:
    """Return the refusal of a connection, of listening at a port, or of making a socket."""
    policy = config.policy
    plan = config.prepare.plan
    field = "network_access"
    listed = policy.network_access
    address = _address(call.target)
    addresses = listed if isinstance(listed, tuple) else ()
    if plan.bound is not None and call.errno == errno.EACCES:
        return _ports(plan.bound, address)
    entries = list_line(field, (*addresses, address))
    if plan.loopback and call.errno in _AMONG_THEMSELVES:
        if call.errno != errno.ECONNREFUSED or not address or address in addresses:
            # The other end answered: it is one of the session's own programs, or is listed.
            return None
        reason = "cells have a network of their own, in which nobody listens at this address"
        return Refusal(field, reason, Remedy(entries), address)
    own_network = plan.loopback and plan.subprocess and not plan.local_sockets
    if own_network and call.errno in _DENIED_ERRNOS and not address:
        reason = "cells can't make Unix sockets here: they could reach other programs by them"
        instead = "listen at 127.0.0.1, which nobody else reaches"
        if "namespaces" not in plan.locks:
            instead += f"; or {bubblewrap.how_to_have(policy.backend)}"
        return Refusal(field, reason, Remedy(instead=instead))
    if listed is True or (addresses and (address in addresses or call.errno not in _KEPT_AWAY)):
        # The policy allows the connection. The other end refused it, or nobody listens there.
        return None
    reason = "cells can reach only listed addresses, by TCP" if listed else "cells have no network"
    line = f"{field} = true" if not call.target else entries if address else ""
    return Refusal(field, reason, Remedy(line), address)


def _ports(bound: tuple[int, ...], address: str) -> Refusal:
    """Return the refusal of a port that a cell tried to listen at; ``bound`` are the listed ports.

    Nothing else fails with EACCES where ports are listed.
    """
    reason = "cells can listen only at the listed ports"
    port = address.rpartition(":")[2]
    line = f"ports = [{', '.join(map(str, (*bound, port)))}]" if port else 'ports = "any"'
    return Refusal("ports", reason, Remedy(line), address)


def _address(target: str) -> str:
    """Return an address as a policy spells it; empty if the target is not an address."""
    try:
        return str(parse_address(target))
    except ValueError:
        return ""


def _limits_of_files(call: FailedCall, config: SessionConfig) -> Refusal | None:
    """Return the refusal by a limit on files: one file's size, all files' size, or open files."""
    policy = config.policy
    plan = config.prepare.plan
    largest = plan.limits.max_file_size
    match call.errno:
        case errno.EFBIG if largest is not None and largest != policy.max_file_size:
            # The plan set this limit from ``scratch_max_bytes``: no file may be larger than all
            # files together (backends/plan.py). So that is the field to raise.
            reason = f"cells can't write files larger than {value_words('max_file_size', largest)}"
            line = Remedy(_policy_line("scratch_max_bytes", 2 * largest))
            return Refusal("scratch_max_bytes", reason, line)
        case errno.EFBIG:
            return _refusal_by_limit(policy, "max_file_size", "cells can't write files larger")
        case errno.EMFILE:
            return _refusal_by_limit(policy, "max_open_files", "cells can't open more files")
        case errno.ENOSPC if plan.bounded:
            return _refusal_by_limit(
                policy, "scratch_max_bytes", "cells can't keep more data in files"
            )
    return None


def _home(call: FailedCall, config: SessionConfig, code: str) -> Refusal | None:
    """Return the refusal of a file in the home folder, in one of two cases; None otherwise.

    First, a cell writes ``~`` and means the user's home folder, but ``~`` is the cells' scratch
    folder, where the file is missing. Second, the project is the home folder or holds it. Then
    cells read only the single files beside the notebook, and no policy line changes that.
    """
    path = os.path.normpath(call.target)
    field = "filesystem_read_roots"
    home = _home_of(config)
    project = str(config.project)
    policy = config.policy
    if call.errno == errno.ENOENT and within(path, home) and _NAMES_HOME.search(code):
        # The file in the user's home folder that the cell means.
        path_in_home = os.path.join(os.path.expanduser("~"), os.path.relpath(path, home))
        roots = (*policy.filesystem_read_roots, *policy.filesystem_staged_roots)
        instead = f"the project is {project}: put the files that cells need there"
        if not config.has_project:
            instead = _UPLOAD
        if _is_in(path_in_home, roots) and not _is_in(
            path_in_home, denied(policy, private=config.private)
        ):
            instead = f"write {named(path_in_home)}"
        reason = "~ is a folder of the cells' own"
        shown_path = _shown_path(path, config)
        return Refusal(field, reason, Remedy(instead=instead), shown_path)
    if call.errno not in (*_DENIED_ERRNOS, errno.ENOENT) or not within(path, project):
        return None
    never = denied(policy, private=config.private)
    if _is_in(path, never) or not reads_home_files(policy, config.project):
        return None
    if _is_in(path, policy.filesystem_read_roots) and call.errno == errno.ENOENT:
        return None
    reason = (
        "cells can read the files beside a notebook in your home folder, but nothing else there"
    )
    instead = "put the notebook and its files in a folder of their own: mkdir ~/analysis"
    return Refusal(field, reason, Remedy(instead=instead), path)


def names_home(code: str) -> bool:
    """Return whether a cell's source names the home folder."""
    return _NAMES_HOME.search(code) is not None


def _home_of(config: SessionConfig) -> str:
    """Return the cells' home folder, whose files are staged, or removed when the session ends."""
    return config.prepare.environment.get("HOME") or str(config.scratch)


def _shown_path(path: str, config: SessionConfig) -> str:
    """Return a path as a cell would write it, with ``~`` for the cells' home folder."""
    home = _home_of(config)
    return f"~{path.removeprefix(home)}" if within(path, home) else path


def _file(call: FailedCall, config: SessionConfig) -> Refusal | None:
    """Return the refusal of a file by the roots for reading and writing, or by a denied name."""
    plan = config.prepare.plan
    path = os.path.normpath(call.target)
    wrapped = "namespaces" in plan.locks
    writable = _is_in(path, plan.writable)
    if call.errno == errno.EPERM and not wrapped and (writable or not call.target):
        # Behind bubblewrap cells may do that if they stage what they write, or start programs.
        could = receives_mounts() if plan.layers else plan.subprocess
        return _attributes(call.target, config.policy.backend) if could else None
    # Behind namespaces a file that cells may not use is missing, or mounted for reading only.
    hidden = call.errno == errno.ENOENT and (wrapped or plan.hides(path))
    failed = hidden or call.errno in _DENIED_ERRNOS or call.errno == errno.EXDEV
    if not os.path.isabs(path) or not failed:
        return None
    roots = config.policy.filesystem_read_roots
    names = config.policy.read_deny_paths
    if (not hidden or plan.hides(path)) and pattern_beneath(path, roots, names):
        reason = "cells can't read files of this name: they often hold passwords"
        line = list_line("filesystem_read_roots", [path])
        instead = "pass on single variables of the kernel's environment: env_var_access"
        return Refusal("read_deny_paths", reason, Remedy(line, listed=True, instead=instead), path)
    outside = not _is_in(path, (*plan.read_roots, *plan.writable, *plan.device_files))
    # A call that only reads never fails with EROFS, so with that error the cell tried to write.
    hides = plan.hides(path)
    writes = call.errno == errno.EROFS or (call.writes and not hides)
    if (hides or outside) and not writes:
        reason = "cells can't use files outside of its folders"
        return Refusal("filesystem_read_roots", reason, _to_read(path, config), path)
    readable = hidden and not outside
    if readable or _is_in(path, (*plan.writable, *plan.device_files)):
        # Cells may use this path. The file does not exist, or its own mode forbids the call.
        return None
    folder = path if call.in_folder else os.path.dirname(path)
    remedy = _to_write(folder, config)
    if not remedy.line and not os.path.splitext(path)[1]:
        # No extension, so the path may itself be the folder that the cell wants to write to.
        remedy = _to_write(path, config)
    reason = "cells can write only to the folders listed for writing"
    return Refusal("filesystem_write_roots", reason, remedy, path)


def _denied_path(call: FailedCall, config: SessionConfig) -> Refusal | None:
    """Return the refusal of a path within the policy's roots that ``read_deny_paths`` denies.

    The answer does not depend on whether the file exists.
    """
    policy = config.policy
    field = "read_deny_paths"
    path = os.path.normpath(call.target)
    roots = (
        *policy.filesystem_read_roots,
        *policy.filesystem_staged_roots,
        *policy.filesystem_write_roots,
    )
    entry = next((candidate for candidate in denied_paths(policy) if within(path, candidate)), "")
    if call.errno not in _ABOUT_PATHS or not entry or not _is_in(path, roots):
        return None
    at_start = config.operators or policy
    place = field
    if entry not in denied_paths(at_start):
        place = "the %policy narrow line, or the notebook's metadata, that denies it"
    instead = f"take {entry} out of {place}, and restart"
    return Refusal(field, "cells can't use a path that it denies", Remedy(instead=instead), path)


#: The advice for cells that have the operation ``read_file``.
_BY_OPERATION: Final = (
    "have the host read it: io.BytesIO(ops.read_file(PATH, binary=True)) stands for the file"
)
#: The advice for cells of a session without a project.
_UPLOAD: Final = "have the program upload the file, or name a project (project=, --project)"


def _in_scratch(call: FailedCall, config: SessionConfig) -> Refusal | None:
    """Return the refusal of a file that is missing in the scratch folder, in mode safe.

    There cells begin in the scratch folder and do not read the project, so a relative path that
    names a file of the project leads to scratch.
    """
    reads_project = _is_in(str(config.project), config.prepare.plan.read_roots)
    if config.policy.mode != "safe" or call.errno != errno.ENOENT or reads_project:
        return None
    if not within(os.path.normpath(call.target), str(config.prepare.scratch)):
        return None
    if not config.has_project:
        reason = "cells begin in a folder of their own, and there is no project"
        return Refusal("filesystem_read_roots", reason, Remedy(instead=_UPLOAD))
    reason = "cells begin in a scratch folder, and can't read the files of your project"
    line = 'filesystem_read_roots = ["{project}"]'
    operations = config.policy.ops
    instead = _BY_OPERATION if operations is not None and operations.read_file is not None else ""
    return Refusal("filesystem_read_roots", reason, Remedy(line, listed=True, instead=instead))


def _attributes(path: str, backend: str) -> Refusal:
    """Return the refusal of setting a mode, owner or times in a staged folder without bubblewrap.

    ``path`` may be empty, since Python does not always name the file. ``backend`` is the policy's.
    """
    reason = "cells can't set modes, owners and times of files here without bubblewrap"
    have = bubblewrap.how_to_have(backend)
    instead = f"{have}. shutil.copy2 and the like go on without"
    return Refusal("filesystem_staged_roots", reason, Remedy(instead=instead), path)


def _is_in(path: str, roots: tuple[str, ...]) -> bool:
    return any(within(path, root) for root in roots)


def _to_read(path: str, config: SessionConfig) -> Remedy:
    """Return the policy line that lets cells read a path, or why there is none."""
    never = denied(config.policy, private=config.private)
    if _is_in(path, (*_SYSTEM_FOLDERS, *never)):
        return Remedy(instead="no policy opens this: it holds keys, settings or processes of yours")
    if _is_in(path, config.policy.filesystem_read_roots):
        instead = (
            "a denied path lies in this root, so cells have its entries one by one, as they were "
            "when the kernel started: put the notebook in a folder without one, and restart"
        )
        return Remedy(instead=instead)
    line = list_line("filesystem_read_roots", [path])
    folder = os.path.dirname(path)
    if _is_in(path, _MACHINE_FOLDERS):
        return Remedy(line, listed=True)
    writing = _to_write(folder, config)
    instead = f"to write there: add.{writing.line}" if writing.line else writing.instead
    return Remedy(line, listed=True, instead=instead)


def _to_write(folder: str, config: SessionConfig) -> Remedy:
    """Return the policy line that lets cells write to a folder, and where they may already write.

    There is no line for a folder of the machine's or one that may not be written to (``denied``).
    """
    policy = config.policy
    field = "filesystem_write_roots"
    below = _below(config)
    if within(folder, str(config.scratch)):
        folder = "{scratch}"  # the next kernel's scratch folder has another name
    if not _is_in(folder, _MACHINE_FOLDERS):
        with contextlib.suppress(PolicyError):
            check_writable((folder,), denied(policy, private=config.private), policy, field)
            return Remedy(list_line(field, [folder]), listed=True, instead=below)
    return Remedy(instead=below or "no policy lets cells write there")


def _below(config: SessionConfig) -> str:
    """Return advice on where cells may write: the first two roots; empty if there are none."""
    written = [root.removesuffix("?") for root in config.policy.filesystem_write_roots]
    # If the cells' home folder is not scratch, its files are staged, and ~ is the name to use.
    if _home_of(config) != str(config.scratch):
        written = ["~" if root == str(config.scratch) else root for root in written]
    roots = [*config.prepare.plan.staged_roots, *written]
    return f"write below {' or '.join(roots[:2])}" if roots else ""
