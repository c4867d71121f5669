"""From a view to what an engine is told to mount, each place with its words.

Places come sorted by depth: what is above is there before what is beneath. An engine makes no
links, so where a name leads through one, what that leads to is mounted at the name as well.
"""

from __future__ import annotations

import csv
import io
import os
from typing import TYPE_CHECKING, Final

from cellblock.backends import bubblewrap as views
from cellblock.backends import roots
from cellblock.policy.links import links
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cellblock.backends.base import Room, View

#: Every container has its own; what is granted beneath them is there.
_ITS_OWN: Final = ("/proc", "/sys", "/dev")
_EMPTY: Final = "tmpfs-size=4096", "tmpfs-mode=0555", "readonly"

Mount = tuple[str, tuple[str, ...]]


def mounts(argv: Sequence[str], view: View) -> list[Mount]:
    """Return the places to mount and the engine's words for each."""
    made: dict[str, tuple[str, ...]] = {}
    for path in _whole([*view.readable, *roots.canonical([argv[0]])]):
        if not any(within(path, root) for root in view.writable):  # else it is both
            made[path] = _bound(path, path)
    made |= {at: _bound(target, at) for at, target in _aliases([*argv, *view.names], made)}
    shown = (*made, *view.writable)
    for path in roots.outermost(path for path in view.masked if views.is_shown(path, shown)):
        if not _is_its_own(path):
            made[path] = _masked(path)
    for path in view.writable:
        made[path] = _bound(path, path, read_only=False)
    if view.room:  # also where it lies in what is writable: it has a size
        made[view.room.scratch] = _scratch(view.room)
    return sorted(made.items(), key=lambda one: one[0].split("/"))


def _whole(paths: Iterable[str]) -> list[str]:
    """Return which of canonical paths to mount; the root of all can't be, so what is in it is."""
    found = roots.outermost(paths)
    if "/" in found:
        inside = (entry.path for entry in os.scandir("/") if not entry.is_symlink())
        found = tuple(sorted(inside))
    return [path for path in found if not _is_its_own(path)]


def _is_its_own(path: str) -> bool:
    return any(within(path, root) for root in _ITS_OWN)


def _aliases(names: Iterable[str], made: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each name that leads to something else, and that, where the name will not be there."""
    known = tuple(made)
    for at, _ in links(names):
        target = os.path.realpath(at)
        if not any(within(at, path) for path in known) and any(
            within(target, path) for path in known
        ):
            yield at, target


def _bound(source: str, at: str, *, read_only: bool = True) -> tuple[str, ...]:
    words = ["type=bind", f"src={source}", f"dst={at}"]
    return _mount([*words, "readonly"] if read_only else words)


def _masked(path: str) -> tuple[str, ...]:
    if os.path.isdir(path):  # noqa: PTH112 - start-up
        return _mount(["type=tmpfs", f"dst={path}", *_EMPTY])
    return _bound(os.devnull, path)


def _scratch(room: Room) -> tuple[str, ...]:
    """Return the words for a file system in memory that goes with the container.

    Everybody in the container may write there, who is one user.
    """
    words = ["type=tmpfs", f"dst={room.scratch}", "tmpfs-mode=1777"]
    if room.scratch_bytes is not None:
        words += [f"tmpfs-size={room.scratch_bytes}"]
    return _mount(words)


def _mount(words: Iterable[str]) -> tuple[str, ...]:
    """Return the option; its words are fields of CSV, since paths may have commas."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(words)
    return "--mount", line.getvalue()
