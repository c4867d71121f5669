"""What backend ``docker`` does once it is wanted: apart from it, since most kernels need none."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.backends import aside, bubblewrap, probes
from cellblock.backends.base import Room, View
from cellblock.backends.container import engines, images, mounts, undertaker
from cellblock.backends.container.wanted import Refused, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cellblock.backends.base import Support
    from cellblock.backends.docker import Docker

_BOOT: Final = (
    "import sys; sys.path[:] = sys.argv[sys.argv.index('-c', 1) + 4:];"
    "from cellblock.backends.container.launcher import main;"
    "main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])"
)
_INSIDE: Final = (
    "import sys; sys.path[:] = sys.argv[2:];"
    "from cellblock.backends.probes import answer_inside; answer_inside(sys.argv[1])"
)
_OPTIONS: Final = ("-I", "-S", "-X", "utf8", "-c")
#: Seconds that a probe may take; it takes about one.
_PATIENCE: Final = 60.0


def engine(docker: Docker) -> engines.Engine:
    """Return the engine that it names. Raises Refused where there is none."""
    found = engines.find(docker.engine, os.environ)
    if isinstance(found, str):
        raise Refused(found)
    return found


def probe(docker: Docker) -> Support:
    """Take the locks in a real container and look whether they hold. Never raises."""
    try:
        with tempfile.TemporaryDirectory(prefix="cellblock-") as folder:
            return _probed(docker, os.path.realpath(folder))
    except Refused as refusal:
        return probes.unprobed(str(refusal), usable=False)
    except (OSError, subprocess.SubprocessError) as error:
        return probes.unprobed(f"{docker.engine} could not be tried: {error}", usable=False)


def _probed(docker: Docker, folder: str) -> Support:
    """Return what a container says. Raises Refused, OSError, SubprocessError."""
    hidden, view = Path(folder, "hidden"), _least_view(Path(folder, "scratch"))
    hidden.touch()
    plan = probes.plan_for(docker.locks, (str(hidden),), docker.bounded(view))
    inside = [sys.executable, *_OPTIONS, _INSIDE, plan, *bubblewrap.absolute(sys.path)]
    asked = _wanted(docker, inside, view)
    name = f"cellblock-{secrets.token_hex(8)}"
    command = asked.command(name, os.getpid(), inside)
    try:
        ran = asked.engine.ask(*command[1:], seconds=_PATIENCE)
    except subprocess.TimeoutExpired:
        undertaker.remove(asked.engine, [name])
        raise
    if ran.returncode != 0:
        said = ran.stderr.decode(errors="replace")
        return probes.unprobed(engines.meaning(said), usable=False)
    return probes.judged(probes.answered(ran.stdout))


def _least_view(scratch: Path) -> View:
    scratch.mkdir()
    least = bubblewrap.least_view()
    return View(
        readable=least.readable,
        writable=(str(scratch),),
        masked=(),
        devices=least.devices,
        names=least.names,
        room=Room(str(scratch), 1 << 20, 1 << 29, 64),
    )


@contextlib.contextmanager
def command(docker: Docker, argv: Sequence[str], view: View) -> Iterator[list[str]]:
    """Yield the command that starts ``argv`` in a container that sees ``view`` alone.

    It reads from a file what the container is to be. Raises OSError.
    """
    control = argv[list(argv).index("-c") + 2]
    try:
        asked = _wanted(docker, argv, view)
    except Refused as gone:  # since it was looked for
        raise FileNotFoundError(errno.ENOENT, str(gone)) from None
    with aside.told([asked.text()]) as fd:
        yield [sys.executable, *_OPTIONS, _BOOT, str(fd), control, *argv]


def fingerprint(docker: Docker) -> str:
    """Return which image is run, by what, and where that is; asks the engine. Raises OSError."""
    try:
        found = engine(docker)
        image = images.identity(found, images.names(docker.image))
    except (Refused, subprocess.SubprocessError) as error:
        raise OSError(str(error)) from None
    return f"{found.identity()}, runtime {docker.runtime or 'default'}, image {image}"


def _wanted(docker: Docker, argv: Sequence[str], view: View) -> Wanted:
    """Return what the container is to be. Raises Refused."""
    room = view.room
    return Wanted(
        engine=engine(docker),
        runtime=docker.runtime,
        images=images.names(docker.image),
        mounts=tuple(mounts.mounts(argv, view)),
        network=view.network,
        folder=os.path.dirname(room.scratch) if room else tempfile.gettempdir(),  # noqa: PTH120
        memory_bytes=room.memory_bytes if room else None,
        tasks=room.tasks if room else None,
    )
