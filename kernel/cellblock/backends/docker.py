"""Backend docker: a container around the zygote, and the locks of ``landlock`` inside it.

Contract: all that ``bubblewrap`` holds. Beyond that, the root of the file system is read-only, the
scratch folder lies in memory and has a size, the container as a whole has bounds on memory and
tasks if the engine has cgroups, and all processes in it end with its first process.
Gap: the folders that lead to a root exist, with nothing else in them.

Any engine and any OCI runtime will do that share this OS kernel, rootless or not. The inner locks
are required as everywhere: a runtime with an OS kernel of its own that has no Landlock, or that
passes no descriptors (gVisor), starts nothing, and says so.

The host starts ``container_launcher``, which starts the container and stays in the zygote's place.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import os
import secrets
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec import structs

from cellblock.backends.base import (
    UNSTAGED,
    Backend,
    Bounds,
    Declare,
    Support,
    holds,
    names_apart_from,
    no_devices,
    own_network,
    unprobed,
)
from cellblock.backends.bubblewrap import Bubblewrap
from cellblock.backends.container_engine import (
    EMPTY_IMAGE,
    ContainerSpec,
    EngineError,
    MissingImageError,
    explain,
    find_engine,
)
from cellblock.backends.landlock import Landlock, printed_answer, probe_argv, support_from
from cellblock.backends.plan import canonical, interpreter_view, is_masked, outermost
from cellblock.descriptors import written_args
from cellblock.policy.paths import links, within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cellblock.backends.base import View
    from cellblock.backends.container_engine import Mount
    from cellblock.policy.model import Policy

#: Seconds that a probe may take. It takes about 1 s.
_PATIENCE: Final = 60.0
#: Seconds that the engine has to tell an image's id, for which a kernel's start waits.
_START_PATIENCE: Final = 2.0
_HOSTS: Final = "/etc/hosts"
#: Folders that every container has its own of, with all the files that may be granted in them.
_ITS_OWN: Final = ("/proc", "/sys", "/dev")

_LOCKS: Final = ("namespaces", "container", "landlock", "seccomp")
_CALLS: Final = ("seccomp", "no_new_privs", "namespaces")


@dataclass(frozen=True)
class Docker(Backend):
    """A container, and the locks of ``guest.confine``, all of which are required."""

    engine: str = "auto"
    runtime: str = ""
    image: str = ""

    name = "docker"
    locks = ("namespaces", "container", *Landlock.locks)
    wraps = stays = True
    # A container's network is the engine's. This user may not change anything in it.
    adds_addresses = False
    falls_back = False
    declarations: ClassVar[Mapping[str, Declare]] = {
        **Bubblewrap.declarations,
        "filesystem_read_roots": holds(
            "a container: no other names exist but of the folders that lead there; Landlock",
            locks=_LOCKS,
        ),
        "filesystem_write_roots": holds(
            "a read-only root and read-only mounts; Landlock; the system call filter refuses "
            "changes of mode, owner, times, attributes",
            locks=_LOCKS,
        ),
        "filesystem_staged_roots": UNSTAGED,
        "scratch_max_bytes": holds("a file system in memory of that size", locks=("container",)),
        "network_access": own_network("a container without a network; ", _CALLS),
        "devices": no_devices,
    }

    def configured(self, policy: Policy) -> Docker:
        """Return this backend with the engine, runtime and image that ``policy`` names."""
        return Docker(policy.container_engine, policy.container_runtime, policy.container_image)

    def glance(self) -> Support:
        """Look for the engine's program, and at Landlock. The engine is not asked."""
        try:
            find_engine(self.engine, os.environ)
        except EngineError as missing:
            return unprobed(str(missing), usable=False)
        return Landlock().glance()

    def why_no_list(self) -> str:
        """Return "": even a container without a network has a loopback device."""
        return ""

    def why_no_ports(self) -> str:
        """Return that the engine makes the network, which this user can't enter."""
        return "a container's network is the engine's"

    def probe(self) -> Support:
        """Take the locks in a real container, in which a process looks whether they hold."""
        support = self.glance()
        if not support.usable:
            return support
        try:
            with tempfile.TemporaryDirectory(prefix="cellblock-") as folder:
                return self._probe_in(Path(os.path.realpath(folder)))
        except EngineError as refusal:
            return unprobed(str(refusal), usable=False)
        except (OSError, subprocess.SubprocessError) as error:
            return unprobed(f"{self.engine} could not be tried: {error}", usable=False)

    def _probe_in(self, folder: Path) -> Support:
        """Run the probe in a container. Raises EngineError, OSError, SubprocessError."""
        hidden = folder / "hidden"
        scratch = folder / "scratch"
        hidden.touch()
        scratch.mkdir()
        bounds = Bounds(str(scratch), 1 << 20, 1 << 29, 64)
        view = structs.replace(interpreter_view(), writable=(str(scratch),), bounds=bounds)
        inside = probe_argv(self.locks, (str(hidden),), self.bounded(view))
        spec = self._spec(inside, view)
        name = f"cellblock-{secrets.token_hex(8)}"
        command = spec.command(name, os.getpid(), inside)
        try:
            completed = spec.engine.ask(*command[1:], seconds=_PATIENCE)
        except subprocess.TimeoutExpired:
            spec.engine.remove([name])
            raise
        if completed.returncode != 0:
            return unprobed(explain(completed.stderr.decode(errors="replace")), usable=False)
        return support_from(printed_answer(completed.stdout))

    @contextlib.contextmanager
    def command(self, argv: Sequence[str], view: View) -> Iterator[list[str]]:
        """Yield the command that starts ``argv`` in a container that sees only ``view``.

        The command reads the container's specification from a file. ``argv`` is a zygote's command:
        the number of the zygote's descriptor comes after ``-c`` and its program. Raises OSError.
        """
        control = argv[list(argv).index("-c") + 2]
        try:
            spec = self._spec(argv, view)
        except EngineError as exc:  # it was there when ``glance`` looked
            raise FileNotFoundError(errno.ENOENT, str(exc)) from None
        program = (
            "import sys; sys.path[:] = sys.argv[sys.argv.index('-c', 1) + 4:];"
            "from cellblock.backends.container_launcher import main;"
            "main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])"
        )
        options = ["-I", "-S", "-X", "utf8", "-c", program]
        with written_args([spec.to_json()]) as fd:
            yield [sys.executable, *options, str(fd), control, *argv]

    def _spec(self, argv: Sequence[str], view: View) -> ContainerSpec:
        """Return the specification of the container. Raises EngineError."""
        bounds = view.bounds
        return ContainerSpec(
            engine=find_engine(self.engine, os.environ),
            runtime=self.runtime,
            image=self.image or EMPTY_IMAGE,
            mounts=tuple(mounts(argv, view)),
            network=view.network,
            names=tuple(
                dict.fromkeys(
                    (neighbour.name, neighbour.address)
                    for neighbour in view.neighbours
                    if neighbour.name
                )
            ),
            folder=os.path.dirname(bounds.scratch) if bounds else tempfile.gettempdir(),
            memory_bytes=bounds.memory_bytes if bounds else None,
            tasks=bounds.tasks if bounds else None,
        )

    def fingerprint(self) -> str:
        """Return what identifies the engine, the runtime and the image. Asks the engine."""
        try:
            engine = find_engine(self.engine, os.environ)
            name = self.image or EMPTY_IMAGE
            image = engine.image_id(name, seconds=_START_PATIENCE)
            if not image:
                raise MissingImageError(name)
        except (EngineError, subprocess.SubprocessError) as error:
            raise OSError(str(error)) from None
        return f"{engine.identity()}, runtime {self.runtime or 'default'}, image {image}"

    def mounted(self, view: View) -> tuple[str, ...]:
        """Return all of them, because engines follow links, except the scratch folder in memory."""
        scratch = view.bounds.scratch if view.bounds else None
        return tuple(path for path in view.movable if path != scratch)

    def bounded(self, view: View) -> tuple[tuple[str, int], ...]:
        """Return the scratch folder, which lies in memory, with its size."""
        bounds = view.bounds
        if bounds is None or bounds.scratch_bytes is None:
            return ()
        return ((bounds.scratch, bounds.scratch_bytes),)

    def unseen(self, view: View) -> tuple[str, ...]:
        """Return names that exist here, and not in a container that sees ``view``."""
        visible = [*view.readable, *view.writable, *view.devices, *view.names, *_ITS_OWN, "/run"]
        return names_apart_from(visible, filter(os.path.lexists, view.masked))


# --- mounts -----------------------------------------------------------------------------------


def mounts(argv: Sequence[str], view: View) -> list[Mount]:
    """Return the paths to mount at, each with the engine's options for it.

    They are sorted so that a folder is mounted before what lies beneath it. An engine makes no
    links, so if a name leads through a link, the target is mounted at that name as well.
    """
    options: dict[str, tuple[str, ...]] = {}
    # If there are neighbours, the engine makes an /etc/hosts that says where they are.
    readable = [path for path in view.readable if path != _HOSTS or not view.neighbours]
    roots = outermost([*readable, *canonical([argv[0]])])
    if "/" in roots:  # "/" itself can't be mounted, so its entries are
        roots = tuple(sorted(entry.path for entry in os.scandir("/") if not entry.is_symlink()))
    for path in roots:
        # A read root that lies in a write root is part of that one.
        if not _is_its_own(path) and not _is_in(path, view.writable):
            options[path] = _bind(path, path, "readonly")
    mounted = tuple(options)
    for name, _ in links([*argv, *view.names]):
        target = os.path.realpath(name)
        if not _is_in(name, mounted) and _is_in(target, mounted):
            options[name] = _bind(target, name, "readonly")
    visible = (*options, *view.writable)
    for path in outermost(path for path in view.masked if is_masked(path, visible)):
        if not _is_its_own(path):
            options[path] = _mask(path)
    for path in view.writable:
        options[path] = _bind(path, path)
    if view.bounds:  # even if it lies in a writable folder, because it has a size
        # Memory that ends with the container. All its processes may write there; they are one user.
        size = view.bounds.scratch_bytes
        size_option = [] if size is None else [f"tmpfs-size={size}"]
        scratch = view.bounds.scratch
        options[scratch] = _mount("type=tmpfs", f"dst={scratch}", "tmpfs-mode=1777", *size_option)
    return sorted(options.items(), key=lambda entry: entry[0].split("/"))


def _is_in(path: str, roots: Iterable[str]) -> bool:
    return any(within(path, root) for root in roots)


def _is_its_own(path: str) -> bool:
    return _is_in(path, _ITS_OWN)


def _bind(source: str, target: str, *options: str) -> tuple[str, ...]:
    return _mount("type=bind", f"src={source}", f"dst={target}", *options)


def _mask(path: str) -> tuple[str, ...]:
    if os.path.isdir(path):
        options = "tmpfs-size=4096", "tmpfs-mode=0555", "readonly"
        return _mount("type=tmpfs", f"dst={path}", *options)
    return _bind(os.devnull, path, "readonly")


def _mount(*fields: str) -> tuple[str, ...]:
    """Return the option for a mount. Its words are fields of CSV, because paths may have commas."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return "--mount", line.getvalue()
