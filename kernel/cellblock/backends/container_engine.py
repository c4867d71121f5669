"""Container engines: which is here, how each is spoken to, and what its refusals mean.

Source: docker-run(1), podman-run(1), nerdctl's command reference.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import resource
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cellblock.backends.docker import Mount


#: In the order of ``auto``.
NAMES: Final = ("docker", "podman", "nerdctl")
#: What its command line needs of the host's environment, to find the engine.
_VARIABLES: Final = (
    "CONTAINERD_ADDRESS", "CONTAINERD_NAMESPACE", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF",
    "CONTAINER_HOST", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_CERT_PATH", "DOCKER_CONFIG",
    "DOCKER_CONTEXT", "DOCKER_HOST", "DOCKER_TLS_VERIFY", "HOME", "PATH", "TMPDIR",
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
)  # fmt: skip
#: Of these, what leads to another engine or another store of images.
_LEADING: Final = (
    "CONTAINERD_ADDRESS", "CONTAINERD_NAMESPACE", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF",
    "CONTAINER_HOST", "DOCKER_CONTEXT", "DOCKER_HOST",
)  # fmt: skip
#: What stands behind the program of that name.
_BESIDE: Final = ("dockerd", "containerd", "runc", "crun", "conmon")
_ADDRESSES: Final = ("DOCKER_HOST", "CONTAINER_HOST")
#: Seconds that a question may take, of which each takes a fiftieth of one.
PATIENCE: Final = 10.0
_LONGEST: Final = 300

#: What none of them may leave out.
_ALWAYS: Final = (
    "--rm",
    "--pull=never",
    "--read-only",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--ipc=private",
    "--cgroupns=private",
    "--hostname=cellblock",
    "--log-driver=none",
    "--ulimit=core=0:0",
    "--workdir=/",
)
#: The user's own folders are mounted as they are, not given to a container by a new label.
_UNLABELLED: Final = "--security-opt=label=disable"
_OWN: Final[Mapping[str, tuple[str, ...]]] = {
    "docker": (_UNLABELLED, "--no-healthcheck", "--sig-proxy=false"),
    "podman": (
        _UNLABELLED,
        "--no-healthcheck",
        "--sig-proxy=false",
        "--read-only-tmpfs=false",
        "--http-proxy=false",
    ),
    "nerdctl": (),
}


@dataclass(frozen=True, slots=True)
class Engine:
    """One that is installed: its name, its program, and how that finds what it speaks to."""

    name: str
    program: str
    environment: tuple[tuple[str, str], ...]

    def ask(self, *words: str, seconds: float = PATIENCE) -> subprocess.CompletedProcess[bytes]:
        """Run a command of the engine's to its end. Raises OSError, SubprocessError."""
        return subprocess.run(  # noqa: S603 - the engine, as it is found
            [self.program, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
            env=dict(self.environment),
        )

    def identity(self) -> str:
        """Return what changes when another one is installed: its programs, and where it listens.

        The daemon and the usual runtimes count too, where they are found. Raises OSError.
        """
        path = dict(self.environment).get("PATH")
        places = [self.program, *(shutil.which(name, path=path) for name in _BESIDE)]
        files = [_file(os.path.realpath(place)) for place in places if place]
        asked = [value for name, value in self.environment if name in _LEADING]
        return " ".join([self.name, *files, *asked])

    def options(self, *, rootless: bool) -> list[str]:
        """Return what each container of this engine's is started with.

        Files keep their owner, so the process inside is whoever the host is: by the same number,
        or, where the engine runs in the user's own namespace, by the one that the user has there.
        """
        who = f"{os.geteuid()}:{os.getegid()}"
        words = [*_ALWAYS, *_OWN[self.name]]
        if self.name == "podman":
            mapped = ["--userns=keep-id"] if rootless else []
            return [*words, *_limits_as_here(), *mapped, f"--user={who}"]
        return [*words, f"--user={'0:0' if rootless else who}"]

    def rootless(self) -> bool:
        """Ask whether the engine runs without privileges. Raises OSError, SubprocessError."""
        if os.geteuid() == 0:
            return False
        if self.name == "podman":
            return True
        return b"rootless" in self.ask("info", "--format", "{{.SecurityOptions}}").stdout


def _limits_as_here() -> list[str]:
    """Return what keeps podman from raising limits, which it may not be let.

    It lowers its own number of processes to those that there are numbers for.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    tasks = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    numbers = int(Path("/proc/sys/kernel/pid_max").read_text(encoding="ascii"))
    most = numbers if tasks == resource.RLIM_INFINITY else min(tasks, numbers)
    return [f"--ulimit=nofile={files[0]}:{files[1]}", f"--ulimit=nproc={most}:{most}"]


def _file(path: str) -> str:
    found = os.stat(path)  # noqa: PTH116 - start-up
    return f"{path} {found.st_dev}:{found.st_ino} {found.st_size} {found.st_mtime_ns}"


def find(name: str, environ: Mapping[str, str]) -> Engine | str:
    """Return the engine ``name``, or the first there is for ``auto``; or why there is none."""
    for each in NAMES if name == "auto" else (name,):
        if program := shutil.which(each, path=environ.get("PATH")):
            if remote := _remote(environ):
                return f"{remote}: its machine is another, and no socket of ours reaches there"
            kept = tuple((key, environ[key]) for key in _VARIABLES if key in environ)
            return Engine(each, program, kept)
    if name == "auto":
        return "no container engine is installed: install docker, podman or nerdctl"
    return f"{name} is not installed"


def _remote(environ: Mapping[str, str]) -> str:
    """Return the setting that has the engine be on another machine."""
    for name in _ADDRESSES:
        address = environ.get(name, "")
        if address and not address.startswith(("unix://", "/")):
            return f"{name} is {address.partition('://')[0]}://…"
    return ""


_MISSING: Final = (
    r"[Nn]o such image|Unable to find image|image not known|image .* not found|access denied"
)
#: What engines say, and what that means and takes. The first that is found counts.
_MEANINGS: Final = (
    (_MISSING, "the image is not there: cellblock image build"),
    (
        r"permission denied.*(connect|dial unix)|(connect|dial unix).*permission denied",
        "the engine does not let this user in: have it run rootless, or join the group docker",
    ),
    (
        r"annot connect to|unable to connect to|cannot access containerd|connection refused",
        "the engine does not answer: start it (systemctl start docker, or dockerd)",
    ),
    (
        r"nvalid runtime name|nknown runtime|no runtime for|runtime .* not (found|installed)",
        "the engine has no OCI runtime of that name: see container_runtime",
    ),
    (
        r"bind source path does not exist|statfs .*: no such file",
        "the engine does not see this machine's files: one from snap, or in a virtual machine",
    ),
    (r"cgroup", "the engine can't bound it here: it has no cgroup of its own to do so"),
)


def is_missing(said: str) -> bool:
    """Say whether an engine complains of nothing but that an image is not there."""
    return re.search(_MISSING, said) is not None


def meaning(said: str) -> str:
    """Return what an engine's complaint means and takes, and its own words, bounded."""
    words = " ".join(said.split())[-_LONGEST:]
    for pattern, means in _MEANINGS:
        if re.search(pattern, said):
            return f"{means} ({words})"
    return f"it fails here ({words or 'without a word'})"


# What a container is to be: everything that its start takes, as one value that can be sent.

#: Of an image: the folders and files that it has of its own, so that they are not mounted.
HOLDS: Final = "cellblock.holds"
#: Of a container: the process that it belongs to (``owner``).
OWNER: Final = "cellblock.owner"

#: Whole folders of the system's libraries, of which an image has what is linked to.
LIBRARIES: Final = re.compile(r"/(usr/(local/)?)?lib(32|64)?")
_PROGRAMS: Final = frozenset({"/bin", "/usr/bin", "/usr/local/bin"})


class Refused(Exception):  # noqa: N818 - what the engine did
    """The engine did not do what it was told to; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A container by what it is made of.

    ``images`` are tried in their order; ``folder`` is where what it is started by may lie.
    """

    engine: Engine
    runtime: str
    images: tuple[str, ...]
    mounts: tuple[Mount, ...]
    network: bool
    folder: str
    memory_bytes: int | None
    tasks: int | None

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps(dataclasses.asdict(self))

    def command(self, name: str, whose: int, argv: Sequence[str], *extra: str) -> list[str]:
        """Return the command that runs ``argv`` in container ``name``, owned by process ``whose``.

        Asks the engine for the image. Raises Refused where there is none, OSError and
        SubprocessError where the engine can't be asked.
        """
        image, holds = self._image()
        return [
            *(
                self.engine.program,
                "run",
                f"--name={name}",
                f"--label={OWNER}={owner(whose)}",
            ),
            *self.engine.options(rootless=self.engine.rootless()),
            f"--network={'host' if self.network else 'none'}",
            *([f"--runtime={self.runtime}"] if self.runtime else []),
            *self._bounds(),
            *self._mounts(holds),
            *extra,
            f"--entrypoint={os.path.realpath(argv[0])}",
            image,
            *argv[1:],
        ]

    def _bounds(self) -> list[str]:
        found = []
        if self.memory_bytes is not None:
            found += [f"--memory={self.memory_bytes}", f"--memory-swap={self.memory_bytes}"]
        if self.tasks is not None:
            found += [f"--pids-limit={self.tasks}"]
        return found

    def _mounts(self, holds: tuple[str, ...]) -> list[str]:
        """Return the words for what the image does not hold.

        Programs are this machine's, and they need its libraries, of which an image has a few.
        """
        places = {path for path, _ in self.mounts}
        if places & _PROGRAMS:
            holds = tuple(path for path in holds if not LIBRARIES.fullmatch(path))
        return [
            word
            for path, words in self.mounts
            if not any(within(path, held) for held in holds)
            for word in words
        ]

    def _image(self) -> tuple[str, tuple[str, ...]]:
        """Return the first image that is there, and what it holds."""
        for image in self.images:
            asked = self.engine.ask(
                "image", "inspect", "--format", "{{json .Config.Labels}}", image
            )
            if asked.returncode == 0:
                return image, _held(asked.stdout)
            said = asked.stderr.decode(errors="replace")
            if not is_missing(said):
                raise Refused(meaning(said))
        raise Refused(f"no image {' or '.join(self.images)}: cellblock image build")


def wanted(text: str) -> Wanted:
    """Return what ``Wanted.text`` has told."""
    told = json.loads(text)
    engine = told.pop("engine")
    pairs = tuple((name, value) for name, value in engine["environment"])
    told["engine"] = Engine(engine["name"], engine["program"], pairs)
    told["images"] = tuple(told["images"])
    told["mounts"] = tuple((path, tuple(words)) for path, words in told["mounts"])
    return Wanted(**told)


def _held(labels: bytes) -> tuple[str, ...]:
    """Return the paths that an image says to hold; of one that says nothing, none."""
    try:
        held = json.loads((json.loads(labels) or {}).get(HOLDS, "[]"))
        return tuple(str(path) for path in held)
    except (ValueError, TypeError, AttributeError):
        return ()


def owner(pid: int) -> str:
    """Return what no other process will ever be called here: when, where, who, since when."""
    with Path("/proc/sys/kernel/random/boot_id").open(encoding="ascii") as file:
        boot = file.read().strip()
    space = os.readlink("/proc/self/ns/pid").strip("pid:[]")  # noqa: PTH115 - no path
    return f"{boot}:{space}:{os.geteuid()}:{pid}:{started(pid)}"


def started(pid: int) -> int:
    """Return when a process began, in ticks since the boot (proc(5)); 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[19]) if fields[0] not in {"Z", "X"} else 0
