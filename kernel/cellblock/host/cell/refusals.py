"""What the OS layer refused a cell: judged from the policy in hand, and what would allow it.

A guest says which call failed and with which number. That is advice. Whether the policy forbids
such a call ``judge`` decides, from the policy and the plan of the guest's locks; the words are
ours. No path is looked up for it: a card must not tell what is there outside.

Where no cell is refused for its source, what the check of sources finds is said here (``advised``).
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
from cellblock.policy.network import parse_address
from cellblock.policy.paths import pattern_beneath, reads_home_files, within
from cellblock.policy.vocabulary import GIB, MIB, is_size, size_text
from cellblock.render.cards import size, value_words
from cellblock.render.outcomes import Refusal, Remedy, named
from cellblock.wire.messages import FailedCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.host.session.config import SessionConfig
    from cellblock.policy.model import Policy
    from cellblock.wire.messages import NotThere

_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
#: What a call on a path is answered that the policy keeps from cells: it may seem to be missing, to
#: be in use where something is mounted over it, or on another disk.
_ABOUT_PATHS: Final = _DENIED | {errno.ENOENT, errno.EBUSY, errno.EXDEV}
#: Mounted anew, or by the OS kernel: no root opens it.
_SYSTEM: Final = ("/proc", "/sys")
#: The machine's folders, where nobody means to have cells write.
_MACHINES: Final = ("/bin", "/boot", "/dev", "/etc", "/lib", "/run", "/sbin", "/usr", "/var")
#: Bytes of a thread's stack, all of which count from its start (pthread_create(3), RLIMIT_STACK).
_STACK: Final = 8 << 20
#: Variables that each shell and session has, of which no cell's user thinks.
_SHELLS_OWN: Final = frozenset(
    ("_", "COLORTERM", "DISPLAY", "OLDPWD", "PWD", "SHELL", "SHLVL", "TERM", "WAYLAND_DISPLAY")
)
#: Calls that read .env, of python-dotenv, environs and python-decouple, and its extension.
_READS_DOTENV: Final = re.compile(
    r"\b(?:load_dotenv|dotenv_values|find_dotenv|read_env|decouple)\b|^[ \t]*+%dotenv\b",
    re.MULTILINE,
)
#: By which torch, TensorFlow, JAX, CuPy and numba look for a GPU, and what says which there are.
_LOOKS_FOR_GPUS: Final = re.compile(
    r"\bcuda\.(?:is_available|device_count|current_device|get_device_name|init|gpus|detect)\b"
    r"|[\"']cuda(?::[0-9]+)?[\"']|\.cuda\(|\blist_physical_devices\b"
    r"|\bjax\.(?:local_)?device(?:s|_count)\b|^[ \t]*+(?:import|from)[ \t]++cupy\b|\bnvidia-smi\b",
    re.MULTILINE,
)
#: Links on a way (path_resolution(7)).
_MOST_LINKS: Final = 40
#: Fields that keep what is there from being read.
_READING: Final = ("filesystem_read_roots", "read_deny_paths")
#: How a cell names the home folder.
_NAMES_HOME: Final = re.compile(r"~|expanduser|\bhome\(|\bHOME\b")


def judge(call: FailedCall, config: SessionConfig, code: str = "") -> Refusal | None:
    """Return what the policy had to do with a failed call; None where it had nothing.

    ``code`` is the cell, which may name the home folder.
    """
    policy, plan = config.policy, config.prepare.plan
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
    """Return what the policy had to do with what a cell looked for in vain; None for nothing.

    ``environ`` is the kernel's own environment, ``code`` the cell.
    """
    if not config.prepare.plan.locks:
        return None
    if message.kind in ("argument", "word"):
        return _argument(message, config, code)
    if message.kind in ("file", "folder"):
        return _missing(message, config, code)
    name, field = message.name, "env_var_access"
    named = message.direct or re.search(rf"\b{re.escape(name)}\b", code)
    withheld = name in environ and name not in (*config.prepare.environment, *_SHELLS_OWN)
    if not (named and withheld and name.isprintable()):
        return None
    remedy = Remedy(list_line(field, [name]), listed=True)
    return Refusal(field, "cells get no such variable of the kernel's environment", remedy, name)


def _missing(message: NotThere, config: SessionConfig, code: str) -> Refusal | None:
    path = beyond_links(os.path.normpath(message.name), config)
    if not os.path.isabs(path) or _is_in(path, (*_SYSTEM, *_MACHINES)):
        return None
    if message.kind == "file" and not _is_of_this_machine(path):
        return None
    found = _judge_path(path, config, code, seen=message.seen)
    return _of_search(found) if found is not None and found.field in _READING else None


def _argument(message: NotThere, config: SessionConfig, code: str) -> Refusal | None:
    """Return what keeps a path from a program, which failed, and was given the path.

    A word that names no folder may be anything: it counts where a file of its name is denied.
    """
    path = beyond_links(os.path.normpath(message.name), config)
    if not os.path.isabs(path) or not _is_of_this_machine(path):
        return None
    found = _judge_path(path, config, code, seen=message.seen, writes=message.writes)
    if found is None or (message.kind == "word" and found.field != "read_deny_paths"):
        return None
    if message.writes:
        return found
    return _of_search(found) if found.field in _READING else None


def _judge_path(
    path: str, config: SessionConfig, code: str, *, seen: bool, writes: bool = False
) -> Refusal | None:
    """Return what keeps a path from cells; what is there and ``seen`` may be so kept or masked."""
    numbers = (errno.ENOENT, errno.EACCES) if seen or writes else (errno.ENOENT,)
    calls = (FailedCall("file", number, path, writes) for number in numbers)
    return next(filter(None, (judge(call, config, code) for call in calls)), None)


def _is_of_this_machine(path: str) -> bool:
    """Whether the topmost folder of a path is here: else the policy keeps nothing away.

    A notebook asks for ``/kaggle`` to see where it runs, and ``grep /api`` looks for a text. No
    more is looked at than this: a line must not tell what is there outside.
    """
    return os.path.lexists(f"/{path.split('/')[1]}")


def _of_search(found: Refusal) -> Refusal:
    """Leave out where cells write, if a line lets them read the folder: a search reads."""
    if found.field != "filesystem_read_roots" or not found.remedy.line:
        return found
    remedy = dataclasses.replace(found.remedy, instead="")
    return dataclasses.replace(found, remedy=remedy)


def reads_secrets(code: str) -> bool:
    """Whether a cell has a library look for a file of settings by its name."""
    return _READS_DOTENV.search(code) is not None


def judge_secrets(code: str, config: SessionConfig) -> Refusal | None:
    """Return why a file of settings is not there that a cell's library looks for by its name.

    It looks beside the notebook, where cells may write: for a thread.
    """
    if not reads_secrets(code):
        return None
    made_since = f"{config.project}/.env"
    files = [str(path) for path in config.secrets if path.name.startswith(".env")]
    files += [made_since] if os.path.lexists(made_since) else []
    return judge(FailedCall("file", errno.ENOENT, files[0]), config) if files else None


def looks_for_gpus(code: str) -> bool:
    """Whether a cell has a library look for a GPU, which answers that there is none."""
    return _LOOKS_FOR_GPUS.search(code) is not None


def judge_gpus(code: str, config: SessionConfig) -> Refusal | None:
    """Return why a cell's library finds no GPU, where this machine has one.

    By the cell's source and what the host sees: no error tells it, and nothing that the cell says
    is believed.
    """
    if config.policy.devices or not looks_for_gpus(code):
        return None
    what = "cells have no GPU, and this machine has one"
    return _ungranted(NVIDIA, what, config, NVIDIA)


def _device(call: FailedCall, config: SessionConfig) -> Refusal | None:
    """Return the refusal of a device that this machine has, and that a policy may grant."""
    plan, path = config.prepare.plan, call.target
    known = (*plan.device_files, *(each.path for each in plan.devices))
    if call.errno not in _ABOUT_PATHS or path in known or problem(path) is not None:
        return None
    entry = next((name for name in (NVIDIA, DRI) if covers(name, path)), path)
    return _ungranted(entry, "cells have no devices but those that are listed", config, path)


def _ungranted(entry: str, what: str, config: SessionConfig, asked: str) -> Refusal | None:
    """Return a refusal if the backend grants devices, and the entry has any here."""
    if not (config.chosen.backend.grants_devices and devices.find((entry,)).devices):
        return None
    return Refusal("devices", what, Remedy(list_line("devices", [entry]), listed=True), asked)


def beyond_links(path: str, config: SessionConfig) -> str:
    """Return where links of the project lead that are on the way to ``path``.

    Guests can't tell. What is read is links in folders that cells read and do not write; nothing
    outside of them is looked at.
    """
    plan = config.prepare.plan
    written = (*plan.write_roots, *(layer.root for layer in plan.layers if layer.kept_in))
    roots = [*plan.read_roots, *(layer.root for layer in plan.layers if not layer.kept_in)]
    for _ in range(_MOST_LINKS):
        root = next((each for each in roots if within(path, each)), None)
        if root is None or _is_in(path, written):
            break
        at, rest = root, path[len(root.rstrip("/")) + 1 :].split("/")
        while rest:
            at = f"{at.rstrip('/')}/{rest.pop(0)}"
            try:
                target = os.readlink(at)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR):
                    return path
                continue  # no link
            path = os.path.normpath("/".join((os.path.dirname(at), target, *rest)))
            if os.path.isabs(target):
                path = os.path.normpath("/".join((target, *rest)))
            break
        else:
            break
    return path


#: What the check says of a place that leads to what a field allows.
_TOPICS: Final = {
    "filesystem_read_roots": "files",
    "filesystem_write_roots": "files",
    "max_processes": "threads",
    "network_access": "network",
    "subprocess_execution": "processes",
}


def advised(refusal: Refusal, code: str, policy: Policy) -> Refusal:
    """Return a refusal with what the check of sources finds in the cell that is about it."""
    topic = _TOPICS.get(refusal.field)
    if policy.mode == "safe" or topic is None:
        return refusal
    transformed = transform(code)
    found = analyse(transformed.source, dataclasses.replace(policy.rules(), language=True))
    for finding in as_written(found, code, transformed):
        if topic in finding.why:
            advice = f"line {finding.line} has {finding.subject}, which {finding.why}"
            return dataclasses.replace(refusal, advice=advice, rewrite=finding.rewrite)
    return refusal


def _import(call: FailedCall, policy: Policy) -> Refusal | None:
    """Return the refusal of a module beside the notebook, which approved cells don't import.

    No lock is behind it, and no other call is refused without locks.
    """
    if call.kind != "import" or policy.admission == "any":
        return None
    what = "cells import no module of the folder that they run in, since nobody approved the file"
    instead = "install it as a package beside cellblock, or put what it does into the cell"
    return Refusal("admission", what, Remedy(instead=instead), call.target)


def _process(call: FailedCall, policy: Policy) -> Refusal | None:
    field = "subprocess_execution"
    if call.kind == "thread":
        return _thread(call, policy)
    if call.errno == errno.EAGAIN:
        return _limit(policy, "max_processes", "cells have no more threads and processes")
    if call.errno not in _DENIED:
        return None
    if call.kind == "signal":
        return Refusal(field, "cells signal their own processes alone")
    if policy.subprocess_execution:
        return None
    return Refusal(field, "cells start no programs", Remedy(f"{field} = true"))


def _program(call: FailedCall, config: SessionConfig, code: str) -> Refusal | None:
    """Return the refusal of a program's file, or of the folder that it was to start in."""
    if not config.policy.subprocess_execution or not call.target:
        return None
    found = _of_files(msgspec.structs.replace(call, kind="file"), config, code)
    # A file that cells read, and that is no program, isn't what a policy keeps away.
    return found if found is not None and found.field in _READING else None


def _thread(call: FailedCall, policy: Policy) -> Refusal | None:
    """Return which of two limits kept a thread from its start: the C library does not say.

    The guest may have looked when other threads had ended already. So memory is also named where
    it has no room for the stacks of as many threads as there may be.
    """
    memory, most = policy.memory_max_bytes, policy.max_processes
    crowded = memory is not None and (most is None or memory < most * _STACK)
    if call.errno == errno.ENOMEM or crowded:
        return _limit(policy, "memory_max_bytes", "cells and their threads hold no more memory")
    return _limit(policy, "max_processes", "cells have no more threads and processes")


def _memory(call: FailedCall, policy: Policy) -> Refusal | None:
    """Return the refusal of memory, with a line that has room for what was asked for, if known.

    There is no line where the machine has no such room: a limit would change nothing.
    """
    limit = policy.memory_max_bytes
    found = _limit(policy, "memory_max_bytes", "cells hold no more memory")
    if limit is None or found is None:
        return None
    instead = "del what is large and no longer needed: what cells have made is still there"
    remedy = dataclasses.replace(found.remedy, instead=instead)
    # What the cell holds may be all that the limit lets it.
    wanted, there = limit + call.size if call.size else 2 * limit, memory.total()
    if wanted > there:
        instead = f"this machine has {size(there)} of memory: work on parts of the data"
        remedy = Remedy(instead=instead)
    elif call.size:
        remedy = Remedy(_set("memory_max_bytes", wanted), instead=instead)
    asked = f"{size(call.size)} more" if call.size else ""
    return dataclasses.replace(found, remedy=remedy, asked=asked)


def _set(field: str, value: int) -> str:
    """Return the line that sets a limit; sizes are rounded up to a whole number of a unit."""
    if not is_size(field):
        return f"{field} = {value:_}"
    unit = next(unit for unit in (GIB, MIB, 1) if value >= unit)
    return f'{field} = "{size_text(-(-value // unit) * unit)}"'


def _limit(policy: Policy, field: str, what: str) -> Refusal | None:
    """Return the refusal of what is beyond a limit, with the line that doubles it."""
    value = getattr(policy, field)
    if value is None:
        return None
    what = f"{what} than {value_words(field, value)}"
    return Refusal(field, what, Remedy(_set(field, 2 * value), raises=True))


#: What a connection within the session's own network fails with, and none that leads out of it.
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


#: What fails for who is not listed: there is no way to it, and no name server.
_KEPT_AWAY: Final = frozenset({*_DENIED, errno.ENETUNREACH, errno.EHOSTUNREACH})


def _network(call: FailedCall, config: SessionConfig) -> Refusal | None:
    policy, plan = config.policy, config.prepare.plan
    field, listed = "network_access", policy.network_access
    address = _address(call.target)
    known = listed if isinstance(listed, tuple) else ()
    if plan.bound is not None and call.errno == errno.EACCES:
        return _ports(plan.bound, address)
    entries = list_line(field, (*known, address))
    if plan.loopback and call.errno in _AMONG_THEMSELVES:
        if call.errno != errno.ECONNREFUSED or not address or address in known:
            return None  # it is among the session's own programs, or with who is listed
        what = "cells have a network of their own, where nobody listens there"
        return Refusal(field, what, Remedy(entries), address)
    own = plan.loopback and plan.subprocess and not plan.local_sockets
    if own and call.errno in _DENIED and not address:
        what = "cells make no Unix sockets where those of other programs could be named"
        instead = "listen at 127.0.0.1, which nobody else reaches"
        if "namespaces" not in plan.locks:
            instead += f"; or {bubblewrap.how_to_have(policy.backend)}"
        return Refusal(field, what, Remedy(instead=instead))
    if listed is True or (known and (address in known or call.errno not in _KEPT_AWAY)):
        return None  # it was connected to: who listens there refused, or nobody does
    what = "cells reach listed addresses alone, by TCP" if listed else "cells have no network"
    line = f"{field} = true" if not call.target else entries if address else ""
    return Refusal(field, what, Remedy(line), address)


def _ports(bound: tuple[int, ...], address: str) -> Refusal:
    """Return the refusal of a port at which a cell was to listen, which is all that fails so."""
    what, port = "cells listen at the listed ports alone", address.rpartition(":")[2]
    line = f"ports = [{', '.join(map(str, (*bound, port)))}]" if port else 'ports = "any"'
    return Refusal("ports", what, Remedy(line), address)


def _address(target: str) -> str:
    """Return an address as a policy spells it; empty where it is none."""
    try:
        return str(parse_address(target))
    except ValueError:
        return ""


def _limits_of_files(call: FailedCall, config: SessionConfig) -> Refusal | None:
    policy, plan = config.policy, config.prepare.plan
    largest = plan.limits.max_file_size
    match call.errno:
        case errno.EFBIG if largest is not None and largest != policy.max_file_size:
            # No file may be larger than all of them together (plan.py): twice that is enough.
            what = f"cells write no files larger than {value_words('max_file_size', largest)}"
            line = Remedy(_set("scratch_max_bytes", 2 * largest))
            return Refusal("scratch_max_bytes", what, line)
        case errno.EFBIG:
            return _limit(policy, "max_file_size", "cells write no files larger")
        case errno.EMFILE:
            return _limit(policy, "max_open_files", "cells open no more files")
        case errno.ENOSPC if plan.bounded:
            return _limit(policy, "scratch_max_bytes", "cells keep no more files")
    return None


def _home(call: FailedCall, config: SessionConfig, code: str) -> Refusal | None:
    """Return the refusal of what is in the home folder, of which cells have next to nothing.

    Their ~ is their scratch folder, where that is missing which they mean. And of a home folder
    that is the project, or holds it, they read single files: no line in the policy changes that.
    """
    path, field, home = os.path.normpath(call.target), "filesystem_read_roots", _home_of(config)
    project, policy = str(config.project), config.policy
    if call.errno == errno.ENOENT and within(path, home) and _NAMES_HOME.search(code):
        meant = os.path.join(os.path.expanduser("~"), os.path.relpath(path, home))
        roots = (*policy.filesystem_read_roots, *policy.filesystem_staged_roots)
        instead = f"the project is {project}: put there what cells work with"
        if not config.has_project:
            instead = _UPLOAD
        if _is_in(meant, roots) and not _is_in(meant, denied(policy, private=config.private)):
            instead = f"write {named(meant)}"
        what, asked = "~ is a folder of the cells' own", _named(path, config)
        return Refusal(field, what, Remedy(instead=instead), asked)
    if call.errno not in (*_DENIED, errno.ENOENT) or not within(path, project):
        return None
    never = denied(policy, private=config.private)
    if _is_in(path, never) or not reads_home_files(policy, config.project):
        return None
    if _is_in(path, policy.filesystem_read_roots) and call.errno == errno.ENOENT:
        return None
    what = "cells read the files beside a notebook in your home folder, and nothing else there"
    instead = "put the notebook, and what it works with, in a folder of its own: mkdir ~/analysis"
    return Refusal(field, what, Remedy(instead=instead), path)


def names_home(code: str) -> bool:
    """Whether a cell names the home folder."""
    return _NAMES_HOME.search(code) is not None


def _home_of(config: SessionConfig) -> str:
    """Return the cells' home folder: what they write there is staged, or goes with the session."""
    return config.prepare.environment.get("HOME") or str(config.scratch)


def _named(path: str, config: SessionConfig) -> str:
    """Return a path as a cell would write it."""
    home = _home_of(config)
    return f"~{path.removeprefix(home)}" if within(path, home) else path


def _file(call: FailedCall, config: SessionConfig) -> Refusal | None:
    plan, path = config.prepare.plan, os.path.normpath(call.target)
    wrapped, own = "namespaces" in plan.locks, _is_in(path, plan.writable)
    if call.errno == errno.EPERM and plan.layers and not wrapped and (own or not call.target):
        return _attributes(call.target, config.policy.backend) if receives_mounts() else None
    # In namespaces what cells may not use is not there, or is mounted for reading.
    hidden = call.errno == errno.ENOENT and (wrapped or plan.hides(path))
    failed = hidden or call.errno in _DENIED or call.errno == errno.EXDEV
    if not os.path.isabs(path) or not failed:
        return None
    roots, names = config.policy.filesystem_read_roots, config.policy.read_deny_paths
    if (not hidden or plan.hides(path)) and pattern_beneath(path, roots, names):
        what = "cells read no files of this name: they often hold passwords"
        line = list_line("filesystem_read_roots", [path])
        instead = "pass on single variables of the kernel's environment: env_var_access"
        return Refusal("read_deny_paths", what, Remedy(line, listed=True, instead=instead), path)
    outside = not _is_in(path, (*plan.read_roots, *plan.writable, *plan.device_files))
    # Who reads is never told EROFS: that was to write.
    hides = plan.hides(path)
    writes = call.errno == errno.EROFS or (call.writes and not hides)
    if (hides or outside) and not writes:
        what = "cells can't use files outside of its folders"
        return Refusal("filesystem_read_roots", what, _to_read(path, config), path)
    readable = hidden and not outside
    if readable or _is_in(path, (*plan.writable, *plan.device_files)):
        return None  # it is not there for anybody, or an ordinary permission
    folder = path if call.in_folder else os.path.dirname(path)
    remedy = _to_write(folder, config)
    if not remedy.line and not os.path.splitext(path)[1]:
        remedy = _to_write(path, config)  # its name is one of a folder, which may be there already
    what = "cells can write only to the folders listed for writing"
    return Refusal("filesystem_write_roots", what, remedy, path)


def _denied_path(call: FailedCall, config: SessionConfig) -> Refusal | None:
    """Return the refusal of what a path in ``read_deny_paths`` takes out of the policy's roots.

    It is the same whether there is such a file or none.
    """
    policy, field, path = config.policy, "read_deny_paths", os.path.normpath(call.target)
    roots = (
        *policy.filesystem_read_roots,
        *policy.filesystem_staged_roots,
        *policy.filesystem_write_roots,
    )
    entry = next((each for each in denied_paths(policy) if within(path, each)), "")
    if call.errno not in _ABOUT_PATHS or not entry or not _is_in(path, roots):
        return None
    at_start, place = config.operators or policy, field
    if entry not in denied_paths(at_start):
        place = "the %policy narrow line, or the notebook's metadata, that denies it"
    instead = f"take {entry} out of {place}, and restart"
    return Refusal(field, "cells can't use a path that it denies", Remedy(instead=instead), path)


#: How cells get them that the host reads files for.
_BY_OPERATION: Final = (
    "have the host read it: io.BytesIO(ops.read_file(PATH, binary=True)) stands for the file"
)
#: How cells without a project get files.
_UPLOAD: Final = "have the program upload the file, or name a project (project=, --project)"


def _in_scratch(call: FailedCall, config: SessionConfig) -> Refusal | None:
    """Return why a file is looked for in the scratch folder, where mode safe has cells begin."""
    reads_project = _is_in(str(config.project), config.prepare.plan.read_roots)
    if config.policy.mode != "safe" or call.errno != errno.ENOENT or reads_project:
        return None
    if not within(os.path.normpath(call.target), str(config.prepare.scratch)):
        return None
    if not config.has_project:
        what = "cells begin in a folder of their own, and there is no project"
        return Refusal("filesystem_read_roots", what, Remedy(instead=_UPLOAD))
    what = "cells begin in a scratch folder, and read no file of your project"
    line = 'filesystem_read_roots = ["{project}"]'
    operations = config.policy.ops
    instead = _BY_OPERATION if operations is not None and operations.read_file is not None else ""
    return Refusal("filesystem_read_roots", what, Remedy(line, listed=True, instead=instead))


def _attributes(path: str, asked: str) -> Refusal:
    """Return the refusal of setting a mode or times; Python does not say of which file."""
    what = "cells set no modes, owners and times of files here without bubblewrap"
    have = bubblewrap.how_to_have(asked)
    instead = f"{have}. shutil.copy2 and the like go on without"
    return Refusal("filesystem_staged_roots", what, Remedy(instead=instead), path)


def _is_in(path: str, roots: tuple[str, ...]) -> bool:
    return any(within(path, root) for root in roots)


def _to_read(path: str, config: SessionConfig) -> Remedy:
    """Return the line that lets cells read a path, unless no policy opens it."""
    never = denied(config.policy, private=config.private)
    if _is_in(path, (*_SYSTEM, *never)):
        return Remedy(instead="no policy opens this: it holds keys, settings or processes of yours")
    if _is_in(path, config.policy.filesystem_read_roots):
        instead = (
            "a denied path lies in this root, so cells have its entries one by one, as they were "
            "when the kernel started: put the notebook in a folder without one, and restart"
        )
        return Remedy(instead=instead)
    line, folder = list_line("filesystem_read_roots", [path]), os.path.dirname(path)
    if _is_in(path, _MACHINES):
        return Remedy(line, listed=True)
    writing = _to_write(folder, config)
    instead = f"to write there: add.{writing.line}" if writing.line else writing.instead
    return Remedy(line, listed=True, instead=instead)


def _to_write(folder: str, config: SessionConfig) -> Remedy:
    """Return the line that lets cells write to a folder, and where they write already."""
    policy, field, below = config.policy, "filesystem_write_roots", _below(config)
    if within(folder, str(config.scratch)):  # the next kernel's has another name
        folder = "{scratch}"
    if not _is_in(folder, _MACHINES):
        with contextlib.suppress(PolicyError):
            check_writable((folder,), denied(policy, private=config.private), policy, field)
            return Remedy(list_line(field, [folder]), listed=True, instead=below)
    return Remedy(instead=below or "no policy lets cells write there")


def _below(config: SessionConfig) -> str:
    written = [root.removesuffix("?") for root in config.policy.filesystem_write_roots]
    # Where what lies below their ~ is staged, that is the name to write, and not that of scratch.
    if _home_of(config) != str(config.scratch):
        written = ["~" if root == str(config.scratch) else root for root in written]
    roots = [*config.prepare.plan.staged_roots, *written]
    return f"write below {' or '.join(roots[:2])}" if roots else ""
