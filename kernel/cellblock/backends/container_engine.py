"""Container engines: finding one, its options, the meaning of its errors; and the image.

``ContainerSpec`` is everything that is needed to start a container, as a value that can be sent to
another process. A container has a label with the pid of its host.

Source: docker-run(1), podman-run(1), nerdctl's command reference.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import re
import resource
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.backends.base import file_identity
from cellblock.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: A path in the container, and the engine's options that mount something there.
Mount = tuple[str, tuple[str, ...]]

#: The engines, in the order in which "auto" tries them.
NAMES: Final = ("docker", "podman", "nerdctl")
#: Variables of the host's environment that an engine's command line needs.
_VARIABLES: Final = (
    "CONTAINERD_ADDRESS", "CONTAINERD_NAMESPACE", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF",
    "CONTAINER_HOST", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_CERT_PATH", "DOCKER_CONFIG",
    "DOCKER_CONTEXT", "DOCKER_HOST", "DOCKER_TLS_VERIFY", "HOME", "PATH", "TMPDIR",
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
)  # fmt: skip
#: Those of these variables that lead to another engine or another store of images.
_IDENTIFYING: Final = (
    "CONTAINERD_ADDRESS", "CONTAINERD_NAMESPACE", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF",
    "CONTAINER_HOST", "DOCKER_CONTEXT", "DOCKER_HOST",
)  # fmt: skip
#: Programs that an engine uses.
_BEHIND: Final = ("dockerd", "containerd", "runc", "crun", "conmon")
_ADDRESSES: Final = ("DOCKER_HOST", "CONTAINER_HOST")
#: Seconds that a command may take. Most take 0.02 s.
PATIENCE: Final = 10.0
#: Seconds to wait for an engine to remove a container. It goes on when nobody waits any more.
_REMOVE_SECONDS: Final = 5.0
_MAX_WORDS: Final = 300

#: Options that every container is started with.
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
#: The user's folders keep their SELinux labels: no container gets them for itself.
_UNLABELLED: Final = "--security-opt=label=disable"
#: Options that each engine needs beside these.
_BY_ENGINE: Final[Mapping[str, tuple[str, ...]]] = {
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
    """An engine that is installed: its name, its program and the environment to run it in."""

    name: str
    program: str
    environment: tuple[tuple[str, str], ...]

    def ask(
        self, *arguments: str, seconds: float = PATIENCE, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command of the engine to its end. Raises OSError, SubprocessError."""
        return subprocess.run(
            [self.program, *arguments],
            input=stdin,
            capture_output=True,
            timeout=seconds,
            check=False,
            env=dict(self.environment),
        )

    def image_id(self, name: str, *, seconds: float = PATIENCE) -> str:
        """Return an image's id; "" if the engine does not tell it.

        Raises MissingImageError if there is no such image, EngineError if the engine reports
        another error, and OSError and SubprocessError if it can't be asked.
        """
        answer = self.ask("image", "inspect", "--format", "{{.Id}}", name, seconds=seconds)
        if answer.returncode == 0:
            return answer.stdout.decode(errors="replace").strip()
        # Engines report a missing image in many ways, some of them by an empty error.
        complaint = answer.stderr.decode(errors="replace").strip()
        if not complaint or re.search(_MISSING, complaint):
            raise MissingImageError(name)
        raise EngineError(explain(complaint))

    def identity(self) -> str:
        """Return a text that identifies this engine: its programs, and where it listens.

        The daemon and the usual runtimes are included, if they are found. Raises OSError.
        """
        path = dict(self.environment).get("PATH")
        programs = [self.program, *(shutil.which(name, path=path) for name in _BEHIND)]
        files = [file_identity(os.path.realpath(program)) for program in programs if program]
        settings = [value for name, value in self.environment if name in _IDENTIFYING]
        return " ".join([self.name, *files, *settings])

    def options(self, *, rootless: bool) -> list[str]:
        """Return the options that every container of this engine is started with.

        Files keep their owner, so the process inside must be this user: by the same number, or if
        the engine runs in the user's own namespace, by the user's number there.
        """
        user = f"{os.geteuid()}:{os.getegid()}"
        arguments = [*_ALWAYS, *_BY_ENGINE[self.name]]
        if self.name == "podman":
            mapped = ["--userns=keep-id"] if rootless else []
            return [*arguments, *_limits_as_here(), *mapped, f"--user={user}"]
        return [*arguments, f"--user={'0:0' if rootless else user}"]

    def rootless(self) -> bool:
        """Whether the engine runs without privileges. Raises OSError, SubprocessError."""
        if os.geteuid() == 0:
            return False
        if self.name == "podman":
            return True
        return b"rootless" in self.ask("info", "--format", "{{.SecurityOptions}}").stdout

    def remove(self, names: Iterable[str]) -> None:
        """Have the engine remove containers, within bounded time. Ignore errors."""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            self.ask("rm", "--force", *names, seconds=_REMOVE_SECONDS)


def _limits_as_here() -> list[str]:
    """Return options that keep podman from raising limits, which it may not be allowed to do.

    podman itself lowers the limit on processes to the number of pids that there are.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    tasks = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    numbers = int(Path("/proc/sys/kernel/pid_max").read_text(encoding="ascii"))
    most = numbers if tasks == resource.RLIM_INFINITY else min(tasks, numbers)
    return [f"--ulimit=nofile={files[0]}:{files[1]}", f"--ulimit=nproc={most}:{most}"]


def find_engine(name: str, environ: Mapping[str, str]) -> Engine:
    """Return the engine ``name``; for "auto" the first that is installed. Raises EngineError."""
    for engine_name in NAMES if name == "auto" else (name,):
        if program := shutil.which(engine_name, path=environ.get("PATH")):
            for setting in _ADDRESSES:
                address = environ.get(setting, "")
                if address and not address.startswith(("unix://", "/")):
                    why = "its machine is another, and no socket of ours reaches there"
                    raise EngineError(f"{setting} is {address.partition('://')[0]}://…: {why}")
            variables = tuple((key, environ[key]) for key in _VARIABLES if key in environ)
            return Engine(engine_name, program, variables)
    if name == "auto":
        raise EngineError("no container engine is installed: install docker, podman or nerdctl")
    raise EngineError(f"{name} is not installed")


_MISSING: Final = (
    r"[Nn]o such (image|object)|Unable to find image|image not known"
    r"|image .* not found|access denied"
)
#: Patterns of engines' errors, with their meanings and remedies. The first that matches counts.
_MEANINGS: Final = (
    (_MISSING, "the image is not there: cellblock image build"),
    (
        r"permission denied.*(connect|dial unix)|(connect|dial unix).*permission denied",
        "the engine does not let this user in: run it rootless, or join the group docker",
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
    (r"cgroup", "the engine can't limit the container here: it has no cgroup of its own to do so"),
)


def explain(error_text: str) -> str:
    """Return what an engine's error means and what to do, followed by the error, shortened."""
    excerpt = " ".join(error_text.split())[-_MAX_WORDS:]
    for pattern, means in _MEANINGS:
        if re.search(pattern, error_text):
            return f"{means} ({excerpt})"
    return f"it fails here ({excerpt or 'it gave no reason'})"


class EngineError(Exception):
    """The engine did not do what it was told. The text says why, and what to do."""


class MissingImageError(EngineError):
    """The engine has no image of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no image {name}: cellblock image build")


# --- the image --------------------------------------------------------------------------------
#
# The image is empty, and made here without pulling anything. Everything that a guest sees is
# mounted from this machine, including the interpreter. An image is needed only because engines
# start nothing without one (ADR 0017). It is loaded as an archive that every engine reads
# (``docker save``: manifest.json, a configuration, layers by digest).

#: The image that ``cellblock image build`` makes, which is used if a policy names none.
EMPTY_IMAGE: Final = "cellblock:mounted"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
#: Seconds that the engine has to load the image.
_LOAD_SECONDS: Final = 60.0


def build_image(engine: Engine, name: str = EMPTY_IMAGE) -> str:
    """Make an empty image, replacing one with this name; return its name.

    Raises BackendError.
    """
    try:
        loaded = engine.ask("load", seconds=_LOAD_SECONDS, stdin=_archive(name))
    except (OSError, subprocess.SubprocessError) as error:
        raise BackendError(f"no image was made: {error}") from None
    if loaded.returncode:
        raise BackendError(explain(loaded.stderr.decode(errors="replace")))
    return name


def has_image(engine: Engine, name: str) -> bool:
    """Whether the engine has this image. Raises BackendError if the engine does not answer."""
    try:
        engine.image_id(name)
    except MissingImageError:
        return False
    except (EngineError, OSError, subprocess.SubprocessError) as error:
        raise BackendError(f"{engine.name}: {error}") from None
    return True


def _archive(name: str) -> bytes:
    """Return the archive of an image with one layer, which contains an empty folder.

    For some engines, a layer without an entry is not a layer.
    """
    folder = tarfile.TarInfo("etc")
    folder.type = tarfile.DIRTYPE
    folder.mode = 0o755
    layer = _tar((folder, b""))
    machine = os.uname().machine
    config = {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created_by": "cellblock image build"}],
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    return _tar(
        (tarfile.TarInfo("layer.tar"), layer),
        (tarfile.TarInfo("config.json"), json.dumps(config).encode()),
        (tarfile.TarInfo("manifest.json"), json.dumps(manifest).encode()),
    )


def _tar(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in entries:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return archive.getvalue()


# --- a container ------------------------------------------------------------------------------

#: The label with the pid of the host.
HOST: Final = "cellblock.host"


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """The specification of a container. The launcher may make its socket in ``folder``."""

    engine: Engine
    runtime: str
    image: str
    mounts: tuple[Mount, ...]
    network: bool
    folder: str
    memory_bytes: int | None
    tasks: int | None
    #: Names that the container knows, each with an address of its loopback device.
    names: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> str:
        """Return the specification as JSON. Paths need not be UTF-8."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ContainerSpec:
        """Return the specification that ``to_json`` wrote."""
        fields = json.loads(text)
        engine = fields["engine"] | {
            "environment": tuple(map(tuple, fields["engine"]["environment"]))
        }
        mounts = tuple((path, tuple(options)) for path, options in fields["mounts"])
        names = tuple(map(tuple, fields["names"]))
        return cls(**fields | {"engine": Engine(**engine), "mounts": mounts, "names": names})

    def command(self, name: str, host: int, argv: Sequence[str], *extra: str) -> list[str]:
        """Return the command that runs ``argv`` in a container ``name`` for the host with this pid.

        Asks the engine for the image first, and raises what ``Engine.image_id`` raises.
        """
        self.engine.image_id(self.image)
        return [
            self.engine.program,
            "run",
            f"--name={name}",
            f"--label={HOST}={host}",
            *self.options(),
            *extra,
            f"--entrypoint={os.path.realpath(argv[0])}",
            self.image,
            *argv[1:],
        ]

    def options(self) -> list[str]:
        """Return the engine's options for what the container may use and what it sees.

        Raises OSError, SubprocessError.
        """
        arguments = self.engine.options(rootless=self.engine.rootless())
        arguments += [f"--network={'host' if self.network else 'none'}"]
        if self.names:
            # The zygote listens at these addresses, also at ports below 1024.
            arguments += ["--sysctl=net.ipv4.ip_unprivileged_port_start=0"]
            arguments += [f"--add-host={name}:{address}" for name, address in self.names]
        if self.runtime:
            arguments += [f"--runtime={self.runtime}"]
        if self.memory_bytes is not None:
            arguments += [f"--memory={self.memory_bytes}", f"--memory-swap={self.memory_bytes}"]
        if self.tasks is not None:
            arguments += [f"--pids-limit={self.tasks}"]
        return arguments + [option for _, mount in self.mounts for option in mount]
