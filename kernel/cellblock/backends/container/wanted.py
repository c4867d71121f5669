"""What a container is to be: everything that its start takes, as one value that can be sent."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.backends.container.engines import Engine, is_missing, meaning
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.backends.container.mounts import Mount

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
