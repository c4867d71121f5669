"""Adoption: a kernel goes on with what the one before it staged, so that its cells see their files.

That is so where both have a name in common: the connection file, which a restart keeps, or the
notebook. What it takes over is whole or not at all: a session that has ended, of the same folders,
under a policy that allowed no less. What lies in it is a cell's work, as ever: only its owner, its
place and what the overlay would make of it are looked at.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from cellblock.backends.plan import outermost
from cellblock.descriptors import (
    FOLDER,
    closing,
    identity,
    lock,
    open_unlinked,
    remove_tree,
    status,
)
from cellblock.errors import PolicyError
from cellblock.host.services import changes
from cellblock.policy.load import from_fields
from cellblock.policy.narrowing import check_narrower
from cellblock.policy.paths import within
from cellblock.render.text import visible
from cellblock.wire.messages import UPPER, WORK, Layer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cellblock.host.services.changes import Staged
    from cellblock.policy.model import Policy

#: Seconds for which the zygote of a kernel that was killed may still have a layer.
_PATIENCE: Final = 2.0
_NAMED: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Adopted(msgspec.Struct, frozen=True):
    """What was adopted, if anything was, the layers to lay, and what the user is told."""

    staged: Staged | None
    layers: tuple[Layer, ...]
    said: str = ""


def adopt(layers: tuple[Layer, ...], policy: Policy, names: Sequence[str]) -> Adopted:
    """Take over what an ended session staged whose kernel had one of ``names``, the first before.

    ``layers`` are those of a fresh start under ``policy``. While the descriptor of what is adopted
    is open, nobody else can.
    """
    own = Path(layers[0].folder).parent.name
    for one in _candidates(names, own):
        if (lock := one.take()) < 0:
            return Adopted(None, layers, _left(one, "another kernel of it runs"))
        _open_to_owner(one)
        if (why := _why_not(one, layers, policy)) is None:
            _remove_settled(one)
            if one.is_written_to() and not one.is_dropped():
                return _taken(replace(one, lock=lock), layers)
            remove_tree(one.folder)
        os.close(lock)
        if why is not None:
            return Adopted(None, layers, _left(one, why))
    return Adopted(None, layers)


def _candidates(names: Sequence[str], own: str) -> list[Staged]:
    """Return the sessions with one of these names, those with the first before, then the newest."""
    found = [one for one in changes.sessions() if one.id != own]
    each = [
        (min(map(names.index, known)), one) for one in found if (known := {*names} & {*one.names})
    ]
    return [one for _, one in sorted(each, key=lambda pair: (pair[0], -pair[1].began))]


def _left(one: Staged, why: str) -> str:
    where = f"in a terminal: cellblock changes list, cellblock changes keep {one.id}"
    return f"does not show cells what they wrote to your project before: {why}. It is there {where}"


def _taken(one: Staged, layers: tuple[Layer, ...]) -> Adopted:
    """Return the same layers over what was staged; what was hidden stays so."""
    new = tuple(
        msgspec.structs.replace(layer, folder=folder, hidden=outermost((*layer.hidden, *hidden)))
        for layer, (_, folder, hidden) in zip(layers, one.layers, strict=True)
    )
    for layer in new:
        _remove_masks(layer.folder)
    said = (
        "shows cells what they wrote to your project before and you have not kept: %changes lists "
        "it. To begin anew: %changes drop, and restart"
    )
    return Adopted(one, new, said)


def _remove_masks(folder: str) -> None:
    """Remove what hid denied paths in the session that has ended: each zygote makes its own."""
    with contextlib.suppress(OSError):
        for path in Path(folder).iterdir():
            if path.name not in (UPPER, WORK):
                remove_tree(str(path))


# --- whether it may be ----------------------------------------------------------------------------


def _why_not(one: Staged, layers: Sequence[Layer], policy: Policy) -> str | None:
    """Return why these layers can't be laid over what a session staged; None where they can."""
    roots = [layer.kept_in or layer.root for layer in layers]
    folders = [f"{one.folder}/{Path(layer.folder).name}" for layer in layers]
    places = list(zip(roots, folders, strict=True))
    inodes = tuple(identity(root)[1] for root in roots)
    if places != [(root, folder) for root, folder, _ in one.layers] or one.inodes != inodes:
        return "it was of another folder"
    if not _is_ours(one.folder, shut=True) or not all(map(_is_ours, _parts(folders))):
        return f"others than you could have changed {one.folder}"
    if any(map(_is_laid, folders)):
        return "its processes still run"
    try:
        # As JSON has them, which knows no tuples. To compare policies takes pydantic, and the most
        # of a restart: under the one that they were written under nothing has to be compared.
        if json.loads(json.dumps(policy.as_dict())) != one.asked:
            check_narrower(from_fields(dict(one.asked), file=one.policy), policy, file=policy.name)
    except PolicyError as error:
        return f"this policy allows more than the one that it was written under ({error.key})"
    return next(filter(None, map(_in_the_way, layers, one.layers)), None)


def _in_the_way(layer: Layer, before: tuple[str, str, tuple[str, ...]]) -> str:
    """Return what of a layer is denied now and was not, or is where Python imports from."""
    _, folder, hidden = before
    for path in layer.hidden:
        known = any(within(path, top) for top in hidden)
        *_, last = _way(folder, path)
        if not known and last is not None and not changes.is_whiteout(last.found):
            return f"it has {visible(path)}, which is denied now"
    for path in layer.fixed:
        if not all(each is None or each.shows_below for each in _way(folder, path)):
            return f"it has {visible(path)}, which Python imports from now"
    return ""


class _Step(NamedTuple):
    """A name that a layer has; whether it is a folder that shows what is in the one below."""

    found: os.stat_result
    shows_below: bool


def _way(folder: str, path: str) -> list[_Step | None]:
    """Return what a layer has of each name that leads to ``path``; the last is None without it."""
    steps = list[_Step | None]()
    with contextlib.ExitStack() as stack:
        at: int | None = open_unlinked(f"{folder}/{UPPER}", FOLDER)
        for name in path.split("/"):
            found = status(at, name)
            inner = None
            if at is not None and found is not None and stat.S_ISDIR(found.st_mode):
                inner = stack.enter_context(closing(os.open(name, FOLDER, dir_fd=at)))
            shows = inner is not None and not changes.is_opaque(inner)
            steps.append(None if found is None else _Step(found, shows))
            at = inner
    return steps


def _parts(folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        yield from (folder, f"{folder}/{UPPER}", f"{folder}/{WORK}")


def _is_ours(folder: str, *, shut: bool = False) -> bool:
    """Whether this is a folder of this user's, through no link; and ``shut`` to all others.

    What lies in one that is shut nobody else reaches, whatever modes cells gave it.
    """
    try:
        with closing(open_unlinked(folder, FOLDER)) as fd:
            found = os.fstat(fd)
    except OSError:
        return False
    others = stat.S_IRWXG | stat.S_IRWXO if shut else 0
    return found.st_uid == os.geteuid() and not found.st_mode & others


def _open_to_owner(one: Staged) -> None:
    """Let the owner into what cells see as their root again: they may have given it any mode."""
    for _, folder, _ in one.layers:
        with (
            contextlib.suppress(OSError),
            closing(open_unlinked(f"{folder}/{UPPER}", _NAMED)) as fd,
        ):
            mode = stat.S_IMODE(os.fstat(fd).st_mode)
            Path(f"/proc/self/fd/{fd}").chmod(mode | stat.S_IRWXU)


def _is_laid(folder: str) -> bool:
    """Whether a zygote has a layer, after some patience too: two would spoil it (overlayfs.rst)."""
    try:
        with closing(open_unlinked(folder, FOLDER)) as fd:
            lock(fd, patience=_PATIENCE)
    except OSError:
        return True
    return False


# --- what was kept or dropped ---------------------------------------------------------------------


def _remove_settled(one: Staged) -> None:
    """Remove what was kept or dropped: cells see the project there, as the user has it."""
    for name, known in one.settled().items():
        staged = known.staged
        for root, folder, _ in one.layers:
            if not within(name, root) or staged is None:
                continue
            with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
                at, last = changes.enter(
                    f"{folder}/{UPPER}", name[len(root.rstrip("/")) + 1 :], stack
                )
                found = os.stat(last, dir_fd=at, follow_symlinks=False)
                if changes.state(found) == staged and stat.S_ISDIR(found.st_mode):
                    remove_tree(f"/proc/self/fd/{at}/{last}")
                elif changes.state(found) == staged:
                    os.unlink(last, dir_fd=at)
