"""A kernelspec manager for a server that starts no kernel but cellblock's.

``KernelSpecManager.allowed_kernelspecs`` shortens the list that a server shows; a kernel
that is not on it still starts for whoever names it. Here it does not. A module of its own, since
servers' configurations name it::

    jupyter lab --ServerApp.kernel_spec_manager_class=cellblock.jupyter.only.OnlyCellblock

Whoever can write a kernelspec chooses its policy. A server whose users must not, a Hub's, also has
``--OnlyCellblock.operators_only=True``.
"""

from __future__ import annotations

import os
import stat
from itertools import pairwise
from pathlib import Path

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from traitlets import Bool, TraitError, default


class OnlyCellblock(KernelSpecManager):
    """Finds only cellblock's kernels; of those, the ones in ``allowed_kernelspecs`` if set."""

    operators_only = Bool(
        default_value=False,
        config=True,
        help="Look for kernels only in folders that the server's own user can't change.",
    )

    @default("kernel_dirs")
    def _places(self) -> list[str]:
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
        """Return the folders of the kernels there are, by name."""
        found = super().find_kernel_specs()
        return {name: folder for name, folder in found.items() if self._is_ours(name)}

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return a kernel's specification.

        Raises NoSuchKernel for one that is not listed.
        """
        name = kernel_name.lower()
        if name not in super().find_kernel_specs() or not self._is_ours(name):
            raise NoSuchKernel(kernel_name)
        return super().get_kernel_spec(kernel_name)

    def _is_ours(self, name: str) -> bool:
        try:
            argv = super().get_kernel_spec(name).argv
        except (NoSuchKernel, OSError, TraitError, ValueError):  # one that can't be read
            return False
        return ("-m", "cellblock") in pairwise(argv)


def _can_change(folder: str) -> bool:
    """Return whether this user can change what is in a folder, or put another in its place."""
    # As it is written, too: a link of the user's may lead elsewhere at any time.
    named = Path(folder).absolute(), Path(folder).resolve()
    for place in {place for path in named for place in (path, *path.parents) if place.exists()}:
        found = place.stat()
        # What is in such a folder (/tmp) is its owner's alone to rename; more can be put there.
        sticky = found.st_mode & stat.S_ISVTX and place not in named
        if found.st_uid == os.geteuid() or (os.access(place, os.W_OK) and not sticky):
            return True
    return False
