"""Links that names lead through.

Where nothing but roots is shown, they have to be made again; and whoever may write where one stands
decides what its name means, so such a name is as good as written to.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Links that a path may lead through (path_resolution(7)).
_MOST_LINKS: Final = 40


def parts(path: str) -> tuple[str, ...]:
    """Return the names that make up ``path``."""
    return tuple(filter(None, path.split("/")))


def links(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield every link that one of ``names`` leads through, and what it says; once each."""
    seen, folders = set[str](), set[str]()
    for name in names:
        if name.startswith("/"):
            found = follow(name, folders)[1]
            yield from ((at, target) for at, target in found.items() if at not in seen)
            seen.update(found)


def follow(name: str, folders: set[str] | None = None) -> tuple[str, dict[str, str]]:
    """Return where an absolute name leads, and the links on the way with what each says.

    ``folders`` are known to be no links; what else is none is added.
    """
    folders = set() if folders is None else folders
    found = dict[str, str]()
    left, at, most = list(reversed(parts(name))), "/", _MOST_LINKS
    above, _, last = name.rpartition("/")
    if above in folders:  # most names are beside others
        left, at = [last], above
    while left and most:
        part = left.pop()
        at = os.path.normpath(os.path.join(at, part))  # noqa: PTH118 - start-up
        if at in folders or not os.path.islink(at):  # noqa: PTH114
            folders.add(at)
            continue
        found[at] = target = os.readlink(at)  # noqa: PTH115
        left += reversed(parts(target))
        at = "/" if target.startswith("/") else os.path.dirname(at)  # noqa: PTH120
        most -= 1
    return "/".join([at.rstrip("/"), *reversed(left)]), found
