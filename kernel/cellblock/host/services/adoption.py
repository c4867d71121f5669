"""Adoption: a kernel takes over the layers of an earlier session, so its cells see those files.

The start of a kernel calls ``adopt`` before the zygote lays its layers. Both kernels must have a
name in common: the connection file, which a restart keeps, or the notebook (ADR 0033). A kernel
adopts all layers of one session or none. The session must have ended, its layers must be over the
same folders and belong to this user, and the policy may allow no more than the session's did.

Cells wrote the files in those layers, so they count as hostile: adoption looks only at their
owners, their places, and the names that the new policy hides or that Python imports from.
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

#: Seconds to wait for the zygote of a kernel that was killed, which may outlive it and its layers.
_PATIENCE: Final = 2.0
#: Opens a folder whose mode lets nobody in, so that the mode can be changed.
_NAMED: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Adopted(msgspec.Struct, frozen=True):
    """The session that was adopted, or None; the layers to lay; and a line for the user."""

    staged: Staged | None
    layers: tuple[Layer, ...]
    said: str = ""


def adopt(layers: tuple[Layer, ...], policy: Policy, names: Sequence[str]) -> Adopted:
    """Adopt the layers of an ended session whose kernel had one of ``names``; earlier names first.

    ``layers`` are those that a fresh start under ``policy`` would lay. The result has the session
    locked: nobody else can adopt it until that descriptor is closed. A candidate whose changes were
    all kept or dropped is removed, and the next is tried. One that can't be adopted ends the
    search, with a line that says why and where its changes are.
    """
    own = Path(layers[0].folder).parent.name
    for staged in _candidates(names, own):
        if (lock := staged.take()) < 0:
            return Adopted(None, layers, _line_of_left(staged, "another kernel of it runs"))
        _open_to_owner(staged)
        if (why := _why_not(staged, layers, policy)) is None:
            _remove_settled(staged)
            if staged.is_written_to() and not staged.is_dropped():
                return _adopted(replace(staged, lock=lock), layers)
            remove_tree(staged.folder)
        os.close(lock)
        if why is not None:
            return Adopted(None, layers, _line_of_left(staged, why))
    return Adopted(None, layers)


def _candidates(names: Sequence[str], own: str) -> list[Staged]:
    """Return the sessions that have one of these names, ordered by it, the newest first."""
    other_sessions = [staged for staged in changes.sessions() if staged.id != own]
    ranked = [
        (min(map(names.index, shared_names)), staged)
        for staged in other_sessions
        if (shared_names := {*names} & {*staged.names})
    ]
    return [staged for _, staged in sorted(ranked, key=lambda pair: (pair[0], -pair[1].began))]


def _line_of_left(staged: Staged, why: str) -> str:
    where = f"in a terminal: cellblock changes list, cellblock changes keep {staged.id}"
    return f"does not show cells what they wrote to your project before: {why}. It is there {where}"


def _adopted(staged: Staged, layers: tuple[Layer, ...]) -> Adopted:
    """Return the kernel's layers with the session's folders; what was hidden there stays hidden."""
    new = tuple(
        msgspec.structs.replace(layer, folder=folder, hidden=outermost((*layer.hidden, *hidden)))
        for layer, (_, folder, hidden) in zip(layers, staged.layers, strict=True)
    )
    for layer in new:
        _remove_masks(layer.folder)
    line = (
        "shows cells what they wrote to your project before and you have not kept: %changes lists "
        "it. To begin anew: %changes drop, and restart"
    )
    return Adopted(staged, new, line)


def _remove_masks(folder: str) -> None:
    """Remove the folders of whiteouts that hid denied paths: each zygote makes its own."""
    with contextlib.suppress(OSError):
        for path in Path(folder).iterdir():
            if path.name not in (UPPER, WORK):
                remove_tree(str(path))


# --- whether a session may be adopted -------------------------------------------------------------


def _why_not(staged: Staged, layers: Sequence[Layer], policy: Policy) -> str | None:
    """Return why a session can't be adopted for these layers; None if it can."""
    roots = [layer.kept_in or layer.root for layer in layers]
    folders = [f"{staged.folder}/{Path(layer.folder).name}" for layer in layers]
    places = list(zip(roots, folders, strict=True))
    inodes = tuple(identity(root)[1] for root in roots)
    if places != [(root, folder) for root, folder, _ in staged.layers] or staged.inodes != inodes:
        return "it was of another folder"
    if not _is_ours(staged.folder, shut=True) or not all(map(_is_ours, _parts(folders))):
        return f"others than you could have changed {staged.folder}"
    if any(map(_is_laid, folders)):
        return "its processes still run"
    try:
        # Most restarts have the same policy, and then nothing is compared: check_narrower imports
        # pydantic, which would take most of a restart's time. The fields go through JSON, as those
        # of the session did, since JSON makes lists of tuples.
        if json.loads(json.dumps(policy.as_dict())) != staged.asked:
            check_narrower(
                from_fields(dict(staged.asked), file=staged.policy), policy, file=policy.name
            )
    except PolicyError as error:
        return f"this policy allows more than the one that it was written under ({error.key})"
    return next(filter(None, map(_conflict, layers, staged.layers)), None)


def _conflict(layer: Layer, before: tuple[str, str, tuple[str, ...]]) -> str:
    """Return why one layer can't be adopted; empty if it can.

    The layer may have nothing at a path that is denied only now, since it may be a copy of what is
    denied, nor where Python imports from now, since the zygote would import it.
    """
    _, folder, hidden = before
    for path in layer.hidden:
        was_hidden = any(within(path, top) for top in hidden)
        *_, last_step = _steps_to(folder, path)
        if not was_hidden and last_step is not None and not changes.is_whiteout(last_step.found):
            return f"it has {visible(path)}, which is denied now"
    for path in layer.fixed:
        if not all(step is None or step.shows_below for step in _steps_to(folder, path)):
            return f"it has {visible(path)}, which Python imports from now"
    return ""


class _Step(NamedTuple):
    """A file of a layer, on the way to a path; whether it is a folder that shows the one below."""

    found: os.stat_result
    shows_below: bool


def _steps_to(folder: str, path: str) -> list[_Step | None]:
    """Return the layer's file for each name on the way to ``path``; None for one it lacks."""
    steps = list[_Step | None]()
    with contextlib.ExitStack() as stack:
        folder_fd: int | None = open_unlinked(f"{folder}/{UPPER}", FOLDER)
        for name in path.split("/"):
            file_status = status(folder_fd, name)
            inner_fd = None
            if (
                folder_fd is not None
                and file_status is not None
                and stat.S_ISDIR(file_status.st_mode)
            ):
                inner_fd = stack.enter_context(closing(os.open(name, FOLDER, dir_fd=folder_fd)))
            shows = inner_fd is not None and not changes.is_opaque(inner_fd)
            steps.append(None if file_status is None else _Step(file_status, shows))
            folder_fd = inner_fd
    return steps


def _parts(folders: Sequence[str]) -> Iterator[str]:
    """Yield the folders that each layer's folder consists of."""
    for folder in folders:
        yield from (folder, f"{folder}/{UPPER}", f"{folder}/{WORK}")


def _is_ours(folder: str, *, shut: bool = False) -> bool:
    """Return whether a folder, reached through no link, is this user's.

    With ``shut``, it must also give no rights to others. Then nobody else reaches what is in it,
    whatever modes cells gave the files.
    """
    try:
        with closing(open_unlinked(folder, FOLDER)) as fd:
            folder_status = os.fstat(fd)
    except OSError:
        return False
    rights_of_others = stat.S_IRWXG | stat.S_IRWXO if shut else 0
    return folder_status.st_uid == os.geteuid() and not folder_status.st_mode & rights_of_others


def _open_to_owner(staged: Staged) -> None:
    """Give the owner all rights on each upper folder: cells may have taken them away."""
    for _, folder, _ in staged.layers:
        with (
            contextlib.suppress(OSError),
            closing(open_unlinked(f"{folder}/{UPPER}", _NAMED)) as fd,
        ):
            mode = stat.S_IMODE(os.fstat(fd).st_mode)
            Path(f"/proc/self/fd/{fd}").chmod(mode | stat.S_IRWXU)


def _is_laid(folder: str) -> bool:
    """Return whether a zygote still has a layer mounted, after ``_PATIENCE``.

    Two overlays over one upper folder would corrupt it (overlayfs.rst).
    """
    try:
        with closing(open_unlinked(folder, FOLDER)) as fd:
            lock(fd, patience=_PATIENCE)
    except OSError:
        return True
    return False


# --- what was kept or dropped ---------------------------------------------------------------------


def _remove_settled(staged: Staged) -> None:
    """Remove settled changes from the layers, so that cells see the user's files in their places.

    A staged file that has changed since is staged again, and stays.
    """
    for name, settled_change in staged.settled().items():
        settled_as = settled_change.staged
        for root, folder, _ in staged.layers:
            if not within(name, root) or settled_as is None:
                continue
            with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
                folder_fd, last = changes.enter(
                    f"{folder}/{UPPER}", name[len(root.rstrip("/")) + 1 :], stack
                )
                file_status = os.stat(last, dir_fd=folder_fd, follow_symlinks=False)
                if changes.state(file_status) == settled_as and stat.S_ISDIR(file_status.st_mode):
                    remove_tree(f"/proc/self/fd/{folder_fd}/{last}")
                elif changes.state(file_status) == settled_as:
                    os.unlink(last, dir_fd=folder_fd)
