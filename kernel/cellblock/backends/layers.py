"""The layers that a zygote lays over a policy's staged roots, and whether that works here.

A layer is an overlay. What cells write beneath a staged root lands in a folder of the session, in
``changes_folder``. Whether the OS kernel lets this user mount overlays is tried once: by a process
behind the backend that cells will be behind, which writes a file there and looks where it landed.
If that works it is remembered until the machine is started anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from cellblock.backends import plan
from cellblock.backends.base import run_trial, trial_argv
from cellblock.descriptors import remove_tree
from cellblock.errors import BackendError
from cellblock.policy.folders import cache_folder, changes_folder, scratch_name
from cellblock.policy.paths import names_without_wildcards, within
from cellblock.wire.messages import HOME, UPPER, WORK, Layer, lies_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cellblock.backends.base import Backend
    from cellblock.policy.model import Policy

#: Seconds that a trial may take. It takes about 0.1 s.
_PATIENCE: Final = 10.0
_BOOT: Final = "/proc/sys/kernel/random/boot_id"
_WORKS: Final = "works"
_MOST_SAID: Final = 1_000


def make_layers(
    policy: Policy,
    *,
    scratch: Path,
    project: Path,
    private: Sequence[Path] = (),
    home: bool = False,
) -> tuple[Layer, ...]:
    """Return the layers of a session, and make their folders. Raises PolicyError.

    The folders are named like the ``scratch`` folder, which no other session has. With ``home``, if
    there is any layer, there is also one for the cells' home folder.
    """
    fill = {"{scratch}": str(scratch), "{project}": str(project)}
    roots = plan.roots(policy.filesystem_staged_roots, fill)
    denied = plan.denied(policy, private=private)
    imported = plan.canonical(plan.started_unconfined(tuple(plan.interpreter())))
    layers = []
    read_roots = plan.roots(policy.filesystem_read_roots, fill)
    later = tuple(_missing_secrets(policy, project))
    readable = [root for root in roots if any(within(root, read_root) for read_root in read_roots)]
    for number, root in enumerate(filter(os.path.isdir, readable)):
        if any(within(root, path) for path in (*denied, *imported)):
            message = (
                "nothing can be staged in a folder that is denied, or that Python imports from"
            )
            remedy = "Start the kernel in another folder, or take the root out."
            raise policy.error(message, "filesystem_staged_roots", root, remedy)
        folder = f"{changes_folder()}/{scratch_name(scratch)}/{number}"
        with contextlib.suppress(OSError):  # the trial or the zygote will report that
            # For this user alone, because cells may give the files in it any mode.
            os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
            for name in (UPPER, WORK):
                os.makedirs(f"{folder}/{name}", mode=0o700, exist_ok=True)
        layers.append(
            Layer(
                root=root,
                folder=folder,
                hidden=_beneath(root, (*denied, *later)),
                fixed=_beneath(root, filter(os.path.exists, imported)),
            )
        )
    users = os.path.realpath(os.path.expanduser("~"))
    if home and layers and os.path.isdir(users) and users != "/":
        layers.append(_of_home(users, scratch, (*roots, *read_roots), (*denied, *later)))
    return tuple(layers)


def _of_home(home: str, scratch: Path, visible: Sequence[str], denied: Sequence[str]) -> Layer:
    """Return the layer of the cells' home folder, and make its folders.

    Below this layer there are only links to the paths in the user's home that cells are granted
    (``visible``), under the names that they have there. So ``~/lab/x.csv`` is the project's file.
    """
    folder_as_seen = f"{scratch}/{HOME}"
    folder = f"{changes_folder()}/{scratch_name(scratch)}/{HOME}"
    granted = [root for root in plan.outermost(visible) if within(root, home) and root != home]
    with contextlib.suppress(OSError):  # the trial or the zygote will report that
        os.makedirs(folder_as_seen, mode=0o700, exist_ok=True)
        for name in (UPPER, WORK):
            os.makedirs(f"{folder}/{name}", mode=0o700, exist_ok=True)
        for root in granted:
            link = f"{folder_as_seen}{root.removeprefix(home)}"
            os.makedirs(os.path.dirname(link), mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.symlink(root, link)
    # Hidden entries of the home folder (such as .ssh) have no link here, so nothing hides them.
    hidden = [path for path in _beneath(home, (*denied, *granted)) if not path.startswith(".")]
    return Layer(root=folder_as_seen, folder=folder, hidden=tuple(hidden), kept_in=home)


def cover(layers: Iterable[Layer], policy: Policy, private: Sequence[Path]) -> tuple[Layer, ...]:
    """Return the layers, covering also what a narrower policy denies and they don't hide yet."""
    denied = plan.denied(policy, private=private)

    def new(layer: Layer) -> Iterator[str]:
        covered = {*layer.hidden, *layer.fixed}
        for path in _beneath(layer.root, denied):
            if not lies_in(path, covered):
                yield path

    return tuple(
        msgspec.structs.replace(layer, covered=tuple(dict.fromkeys((*layer.covered, *new(layer)))))
        for layer in layers
    )


def _missing_secrets(policy: Policy, project: Path) -> Iterator[str]:
    """Yield the paths of secrets that don't exist yet, in the project's folder and those above.

    Programs look for secrets there. Secrets that exist are denied by their paths.
    """
    names = names_without_wildcards(policy.read_deny_paths)
    for folder in (project, *project.parents):
        yield from (path for name in names if not os.path.lexists(path := f"{folder}/{name}"))


def _beneath(root: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the outermost of ``paths`` beneath a root, relative to it."""
    inside = plan.outermost(path for path in paths if within(path, root) and path != root)
    return tuple(path[len(root.rstrip("/")) + 1 :] for path in inside)


def why_not(layers: Sequence[Layer], backend: Backend, write_roots: Sequence[str]) -> str:
    """Return why these layers can't be laid behind a backend, or "".

    ``write_roots`` are folders that cells write to directly. A layer would cover such a folder in
    its root, and from such a folder above the root cells could put another folder in its place.
    """
    for layer in layers:
        for folder in (*write_roots, layer.folder):
            if within(folder, layer.root) or within(layer.root, folder):
                return f"{folder} is written to as it is"
        file = Path(cache_folder(), f"overlay-{_circumstances(layer, backend)}")
        if file.exists():
            continue
        if (answer := _try(layer, backend)) != _WORKS:
            return answer
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
    return ""


def receives_mounts() -> bool:
    """Whether later mounts elsewhere propagate to namespaces made here (proc(5), mountinfo).

    If so, cells can't set modes, owners and times under Landlock alone
    (``guest.confine.layer.seal``).
    """
    try:
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return True
    return any(line.split()[6] != "-" for line in lines)


def _circumstances(layer: Layer, backend: Backend) -> str:
    """Return a name for the circumstances on which the answer depends."""
    try:
        boot = Path(_BOOT).read_text("ascii")
        devices = [os.stat(path).st_dev for path in (layer.root, layer.folder)]
    except OSError as error:
        boot = str(error)
        devices = []
    facts = (boot, os.uname().release, os.getuid(), backend.name, backend.fingerprint(), devices)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def _try(layer: Layer, backend: Backend) -> str:
    """Have a process lay such a layer and write a file there; return "works", or why not."""
    folder = f"{os.path.dirname(layer.folder)}/trial"
    try:
        for name in (UPPER, WORK):
            os.makedirs(f"{folder}/{name}", mode=0o700, exist_ok=True)
        trial = msgspec.json.encode(Layer(root=layer.root, folder=folder)).decode()
        argv = trial_argv("cellblock.guest.confine.layer", "run_trial", trial)
        view = plan.interpreter_view(writable=(layer.root, os.path.dirname(layer.folder)))
        with backend.command(argv, view) as command:
            completed = run_trial(command, _PATIENCE)
        answer = (completed.stdout or completed.stderr).decode(errors="replace").strip()
        return answer[-_MOST_SAID:] or f"the trial ended with status {completed.returncode}"
    except (OSError, ValueError, BackendError) as error:
        return str(error)
    finally:
        remove_tree(folder)
