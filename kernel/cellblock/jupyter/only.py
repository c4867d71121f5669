"""A kernelspec manager for a server that starts no kernel but cellblock's.

``KernelSpecManager.allowed_kernelspecs`` shortens the list that a server shows; a kernel
that is not on it still starts for whoever names it. Here it does not. A module of its own, since
servers' configurations name it::

    jupyter lab --ServerApp.kernel_spec_manager_class=cellblock.jupyter.only.OnlyCellblock
"""

from __future__ import annotations

from itertools import pairwise

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from traitlets import TraitError


class OnlyCellblock(KernelSpecManager):
    """Finds only cellblock's kernels; of those, the ones in ``allowed_kernelspecs`` if set."""

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
