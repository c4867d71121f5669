"""What an image of this interpreter holds: files by their names here, so that both sides agree.

The interpreter, its library without what only developers run, what installers put on its path, what
all of that links to (ldd(1)), and the system's small shared data. A library that is loaded by its
name alone is not found this way: mounting (``images.FRAME``) has it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.backends import places, roots
from cellblock.backends.container.wanted import LIBRARIES
from cellblock.errors import BackendError
from cellblock.policy.links import links as found_links
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Of the library: for developers, or another environment's packages.
_LEFT_OUT: Final = frozenset(
    {"test", "idlelib", "turtledemo", "ensurepip", "site-packages", "dist-packages"}
)
_ELSEWHERE: Final = ("/proc", "/sys")
#: Half of it all, and messages of programs that are not there.
_CATALOGUES: Final = "/usr/share/locale"
#: Loaded by the C library when a thread ends, and linked by nothing (pthread_cancel(3)).
_LOADED: Final = ("libgcc_s.so.1",)
_LINKED: Final = re.compile(r"^\s(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)
#: Files that one ldd is given.
_AT_ONCE: Final = 200


def held_folders() -> tuple[str, ...]:
    """Return the roots that such an image stands for, links to them among them."""
    names = _names()
    canonical = roots.canonical([*names, os.path.realpath(sys.executable)])
    kept = [path for path in canonical if not any(within(path, other) for other in _ELSEWHERE)]
    return (*kept, *(at for at, _ in image_links()))


def image_links() -> tuple[tuple[str, str], ...]:
    """Return the links by which what is held is found, and what each says."""
    return tuple(found_links([sys.executable, *_names()]))


def files() -> Iterator[str]:
    """Yield the path of each file, folder and link to go in, once each; parents may be missing.

    Raises BackendError where ldd(1) is not there.
    """
    whole = sorted({path for root in _copied() for path in _beneath(root)})
    yield from whole
    native = [path for path in whole if path.endswith(".so") or ".so." in path]
    known = set(whole)
    for path in sorted(_linked([os.path.realpath(sys.executable), *native])):
        if path not in known:
            yield path


def _names() -> list[str]:
    """Return what the interpreter needs, as it is spelled, but cellblock where it stands alone.

    That is mounted: its code has to be the host's.
    """
    ours = str(Path(__file__).resolve().parents[2])
    found = [path for path, _ in places.SYSTEM]
    return [*found, *(path for path in places.interpreter() if path != ours)]


def _copied() -> list[str]:
    """Return the roots that are copied, canonical."""
    library = os.path.realpath(sysconfig.get_path("stdlib"))
    program = os.path.realpath(sys.executable)
    # A prefix's whole lib folder may be the system's: of it, the library and the packages.
    prefixes = [f"{prefix}/lib" for prefix in (sys.prefix, sys.base_prefix)]
    others = [path for path in _names() if not LIBRARIES.fullmatch(path) and path not in prefixes]
    canonical = [os.path.realpath(path) for path in others if os.path.exists(path)]  # noqa: PTH110
    small = [path for path in canonical if not LIBRARIES.fullmatch(path)]
    left_out = (*_ELSEWHERE, _CATALOGUES)
    kept = [path for path in small if not any(within(path, each) for each in left_out)]
    return [library, program, *kept]


def _beneath(root: str) -> Iterator[str]:
    """Yield ``root`` and what is beneath it; links are not followed."""
    yield root
    if os.path.islink(root) or not os.path.isdir(root):  # noqa: PTH112, PTH114
        return
    is_library = root == os.path.realpath(sysconfig.get_path("stdlib"))
    with os.scandir(root) as entries:
        for entry in entries:
            if is_library and (entry.name in _LEFT_OUT or entry.name.startswith("config-")):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _beneath(entry.path)
            else:
                yield entry.path


def _linked(binaries: list[str]) -> set[str]:
    """Return the libraries that ``binaries`` link to, by the name they are found under."""
    found: set[str] = set()
    for start in range(0, len(binaries), _AT_ONCE):
        try:
            ran = subprocess.run(  # noqa: S603 - of the system's
                ["/usr/bin/ldd", *binaries[start : start + _AT_ONCE]],
                capture_output=True,
                check=False,
                env={},
            )
        except OSError as error:
            raise BackendError(f"what the interpreter links to is not known: {error}") from None
        found.update(_LINKED.findall(ran.stdout.decode(errors="replace")))
    beside = {os.path.dirname(path) for path in found}  # noqa: PTH120
    found.update(path for path in _joined(beside, _LOADED) if os.path.exists(path))  # noqa: PTH110
    return {_where(path) for path in found}


def _joined(folders: Iterable[str], names: Iterable[str]) -> Iterator[str]:
    return (f"{folder}/{name}" for folder in folders for name in names)


def _where(path: str) -> str:
    folder, name = os.path.split(path)
    return f"{os.path.realpath(folder)}/{name}"
