"""``OnlyCellblock``: a kernelspec manager for servers that must start only cellblock's kernels.

``KernelSpecManager.allowed_kernelspecs`` only shortens the list that a server shows. A kernel that
is not listed still starts if a client names it. With this manager it does not. It has a module of
its own because servers' configurations name it::

    jupyter lab --ServerApp.kernel_spec_manager_class=cellblock.jupyter.only.OnlyCellblock

Whoever can write a kernelspec chooses its policy. If users must not, as on a Hub, the server also
needs ``--OnlyCellblock.operators_only=True``.
"""

from __future__ import annotations

import os
import stat
from itertools import pairwise
from pathlib import Path

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from traitlets import Bool, TraitError, default


class OnlyCellblock(KernelSpecManager):
    """Finds only cellblock's kernels, and if ``allowed_kernelspecs`` is set only those in it."""

    operators_only = Bool(
        default_value=False,
        config=True,
        help="Look for kernels only in folders that the server's own user can't change.",
    )

    @default("kernel_dirs")
    def _kernel_folders(self) -> list[str]:
        """Return the folders of kernels, without those that this user can change if set so."""
        folders: list[str] = self._kernel_dirs_default()
        if not self.operators_only:
            return folders
        theirs = [folder for folder in folders if not _can_change(folder)]
        if not any(map(os.path.isdir, theirs)):
            self.log.warning(
                "OnlyCellblock.operators_only: this user can change every folder of kernels, so "
                "there are none. Start the server as another user than the one who installed them."
            )
        return theirs

    def find_kernel_specs(self) -> dict[str, str]:
        """Return the folders of cellblock's kernels, by name."""
        specs = super().find_kernel_specs()
        return {name: folder for name, folder in specs.items() if self._is_ours(name)}

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return a kernel's specification. Raises NoSuchKernel if it is not one of cellblock's."""
        name = kernel_name.lower()
        if name not in super().find_kernel_specs() or not self._is_ours(name):
            raise NoSuchKernel(kernel_name)
        return super().get_kernel_spec(kernel_name)

    def _is_ours(self, name: str) -> bool:
        """Return whether a kernelspec can be read and starts cellblock."""
        try:
            argv = super().get_kernel_spec(name).argv
        except (NoSuchKernel, OSError, TraitError, ValueError):
            return False
        return ("-m", "cellblock") in pairwise(argv)


def _can_change(folder: str) -> bool:
    """Return whether this user can change a folder's contents, or put another folder in its place.

    The folders above it count too.
    """
    # The path as it is written counts as well as the resolved one: a link in it that the user can
    # change may lead elsewhere at any time.
    paths = Path(folder).absolute(), Path(folder).resolve()
    for candidate in {
        candidate for path in paths for candidate in (path, *path.parents) if candidate.exists()
    }:
        status = candidate.stat()
        # In a sticky folder above it (/tmp) only the owner can rename what is in it.
        sticky = status.st_mode & stat.S_ISVTX and candidate not in paths
        if status.st_uid == os.geteuid() or (os.access(candidate, os.W_OK) and not sticky):
            return True
    return False
