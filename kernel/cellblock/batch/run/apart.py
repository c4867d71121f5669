"""Nothing that is written of a run is in cells' reach, nor in the place of another's files."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cellblock.batch.run.folder import OWN, OutputFolderError
from cellblock.batch.run.plan import Planned
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cellblock.batch.run.folder import OutputFolder
    from cellblock.batch.run.runner import Order


def check(order: Order, folder: OutputFolder, write_roots: Sequence[str]) -> None:
    """Raise OutputFolderError where cells could change what is written, or where it leads."""
    roots = list(map(os.path.realpath, write_roots))
    for path in _written(order, folder):
        for root in roots:
            if within(path, root):
                what = f"cells could change what is written: {root} is writable"
                raise OutputFolderError(f"{path}: {what}. Name another place.")


def _written(order: Order, folder: OutputFolder) -> Iterator[str]:
    """Yield what a run writes; links in DIR are not followed, but by whoever named it."""
    path = os.path.realpath(folder.path)
    yield path
    yield os.path.join(path, OWN)  # noqa: PTH118 - of thousands of notebooks
    for planned in order.notebooks:
        yield os.path.join(path, planned.output)  # noqa: PTH118 - as above
    if order.report is not None:
        yield os.path.join(os.path.realpath(order.report.parent), order.report.name)  # noqa: PTH118


def check_artifacts(notebooks: Sequence[Planned], folder: OutputFolder) -> None:
    """Raise OutputFolderError where a notebook's artifacts would be among another's files."""
    taken = dict[str, Planned]()
    for planned in notebooks:
        first = taken.setdefault(planned.artifacts, planned)
        if first is not planned:
            raise _shared(planned.artifacts, planned, first, folder)
    for planned in notebooks:
        for above in PurePosixPath(planned.output).parents:
            if (other := taken.get(str(above))) is not None:
                raise _shared(str(above), planned, other, folder)


def _shared(name: str, one: Planned, other: Planned, folder: OutputFolder) -> OutputFolderError:
    what = f"files of {other.name}'s cells would be among those of {one.name}"
    return OutputFolderError(f"{folder.path}/{name}: {what}. Run them into two folders.")
