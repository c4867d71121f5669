"""``install`` and ``uninstall``: kernelspecs, by which a policy is a kernel in Jupyter's launcher.

The wheel has two kernelspecs. This module writes others like them, each for a policy.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jupyter_client.kernelspec import (
    NATIVE_KERNEL_NAME,
    KernelSpec,
    KernelSpecManager,
    NoSuchKernel,
)
from jupyter_core.paths import (
    SYSTEM_JUPYTER_PATH,
    jupyter_data_dir,
    prefer_environment_over_user,
)
from traitlets import TraitError

from cellblock.errors import CellblockError
from cellblock.host.session.history import inputs_from_file
from cellblock.jupyter.command_line import options_of
from cellblock.policy.load import KNOWN, load, unsafe_error
from cellblock.policy.vocabulary import FORMER_NAMES

if TYPE_CHECKING:
    from cellblock.policy.model import Policy


SHIPPED: Final = ("cellblock", "cellblock-data")
LOGOS: Final = ("logo-32x32.png", "logo-64x64.png", "logo-svg.svg")

#: The entry point of ``provisioner``. jupyter_client hides a kernelspec if it does not know the
#: provisioner that the kernelspec names.
PROVISIONER: Final = "cellblock-provisioner"
#: The subfolder of a kernelspec that has the kernelspec whose name it took.
DISPLACED: Final = "displaced"

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


def kernel_json(
    policy: Policy,
    spec: str,
    *,
    display_name: str | None = None,
    allow_unsafe: bool = False,
    inputs: Path | None = None,
    shared: bool = False,
    warm: bool = False,
) -> dict[str, Any]:
    """Return a kernelspec that starts the kernel under ``policy``, which was loaded from ``spec``.

    ``shared``: the kernelspec is for several users, so Python ignores their own packages and
    ``usercustomize``. ``warm``: servers keep a kernel of it waiting; they find such a kernelspec
    only if cellblock is installed beside them. ``allow_unsafe``: an unsafe policy starts without
    asking the user.

    Interpreter, policy file and file of inputs are absolute paths, so the kernelspec works from
    any environment's Jupyter.
    """
    argv = [sys.executable, "-E", "-P", *["-s"] * shared]
    argv += ["-m", "cellblock", "-f", "{connection_file}"]
    argv += ["--policy", named(spec)]
    if inputs is not None:
        argv += ["--input", str(inputs.expanduser().resolve())]
    if allow_unsafe and policy.mode == "unsafe":
        argv.append("--allow-unsafe")
    metadata: dict[str, Any] = {"debugger": False, "supported_encryption": ["curve"]}
    if warm:
        metadata["kernel_provisioner"] = {"provisioner_name": PROVISIONER}
    return {
        "argv": argv,
        "display_name": display_name or f"cellblock ({policy.name})",
        "language": "python",
        "interrupt_mode": "message",
        "metadata": metadata,
    }


def named(spec: str) -> str:
    """Return a policy as a kernel's command names it: a preset, or a file's absolute path."""
    shipped = spec in KNOWN or spec in FORMER_NAMES
    return spec if shipped else str(Path(spec).expanduser().resolve())


def install(
    spec: str,
    *,
    name: str | None,
    display_name: str | None,
    prefix: Path | None,
    allow_unsafe: bool,
    inputs: Path | None = None,
    displace: bool = False,
    warm: bool | None = None,
) -> tuple[str, Path]:
    """Check a policy and install a kernelspec for it. Return the kernelspec's name and folder.

    It is installed into Jupyter's data folder below ``prefix``, or the user's for None. ``inputs``
    is the file whose values cells find in ``inputs``. ``displace``: it may take another kernel's
    name; a kernelspec in the same folder is kept inside, for ``uninstall``. ``warm``: servers keep
    a kernel waiting; by default if only servers of this environment look for kernelspecs there.

    Raises PolicyError or InputError for a file that can't be loaded, and CellblockError for a name
    that is not valid or is another kernel's.
    """
    policy = load(spec, project=Path.cwd(), allow_unsafe=True)
    error = unsafe_error(policy, spec)
    if error is not None and not allow_unsafe and policy.approvals != "prompt":
        raise error
    if inputs is not None:
        inputs_from_file(str(inputs))
    if name is None:
        slug = re.sub(r"[^a-z0-9._]+", "-", policy.name.lower()).strip("-")
        name = f"cellblock-{slug or 'policy'}"
    _refuse_name(name, displace=displace)
    if displace and display_name is None and name == NATIVE_KERNEL_NAME:
        display_name = f"Python 3 (cellblock: {policy.name})"
    warm = is_this_environment(prefix) if warm is None else warm
    own: dict[str, Any] = {"display_name": display_name, "inputs": inputs, "warm": warm}
    own["shared"] = prefix is not None
    with tempfile.TemporaryDirectory() as private:
        # Not the temporary folder itself: the mode is copied, and others must be able to read it.
        folder = Path(private, name)
        folder.mkdir()
        content = kernel_json(policy, spec, allow_unsafe=allow_unsafe, **own)
        (folder / "kernel.json").write_text(json.dumps(content, indent=1) + "\n", "utf-8")
        for logo in _logos("cellblock-data" if policy.allowed_modules else "cellblock"):
            shutil.copy(logo, folder)
        if displace:
            _keep_displaced(_folder(name, prefix), folder)
        installed_folder = KernelSpecManager().install_kernel_spec(
            str(folder), name, user=prefix is None, prefix=None if prefix is None else str(prefix)
        )
    return name, Path(installed_folder)


def uninstall(name: str) -> Path:
    """Remove a kernelspec that ``install`` wrote; return its folder.

    If it had displaced another kernelspec, that is put back. Raises CellblockError if no kernelspec
    of cellblock's has this name, and for the two that belong to the package.
    """
    if name in SHIPPED:
        raise CellblockError(f"{name} comes with the package: `pip uninstall cellblock`.")
    folders = [Path(kernels, name) for kernels in KernelSpecManager().kernel_dirs]
    folder = next(filter(_is_ours_in, folders), None)
    if folder is None:
        raise CellblockError(
            f"No cellblock kernel is called {name!r}. See `jupyter kernelspec list`."
        )
    displaced_folder = folder.with_name(f".{name}-{DISPLACED}")
    if (folder / DISPLACED).is_dir():
        (folder / DISPLACED).rename(displaced_folder)
    shutil.rmtree(folder)
    if displaced_folder.is_dir():
        displaced_folder.rename(folder)
    return folder


def find(name: str) -> KernelSpec | None:
    """Return the kernelspec that Jupyter finds by this name, or None."""
    try:
        return KernelSpecManager().get_kernel_spec(name)
    except NoSuchKernel:
        return None


def installed_policies() -> tuple[str, ...]:
    """Return the policies of all installed kernels of cellblock's, as their commands name them."""
    policies = dict[str, None]()
    for _, entry in sorted(KernelSpecManager().get_all_specs().items()):
        with contextlib.suppress(SystemExit):  # raised for options with which no kernel starts
            if (options := options_of(entry["spec"]["argv"])) is not None:
                policies[options.policy] = None
    return tuple(policies)


def default_prefix() -> Path | None:
    """Return the prefix where Jupyter looks first: this environment, or None for the user."""
    return Path(sys.prefix) if prefer_environment_over_user() else None


def is_this_environment(prefix: Path | None) -> bool:
    """Return whether only this environment's servers look for kernelspecs below a prefix."""
    if prefix is None or prefix.resolve() != Path(sys.prefix).resolve():
        return False
    return str(prefix / "share" / "jupyter") not in SYSTEM_JUPYTER_PATH


def _folder(name: str, prefix: Path | None) -> Path:
    """Return the folder in which Jupyter installs the kernelspec ``name``."""
    data = jupyter_data_dir() if prefix is None else prefix / "share" / "jupyter"
    return Path(data, "kernels", name)


def _keep_displaced(installed: Path, new: Path) -> None:
    """Copy the kernelspec in the folder ``installed`` into that of the ``new`` one.

    If the former is cellblock's own, copy the kernelspec that it had displaced instead.
    """
    if _is_ours_in(installed):
        installed /= DISPLACED
    if (installed / "kernel.json").is_file():
        shutil.copytree(installed, new / DISPLACED)


def _is_ours_in(folder: Path) -> bool:
    """Return whether the kernelspec in a folder starts cellblock."""
    try:
        return _starts_cellblock(KernelSpec.from_resource_dir(str(folder)))
    except (OSError, ValueError, TraitError):
        return False


def _starts_cellblock(spec: KernelSpec) -> bool:
    return ("-m", "cellblock") in pairwise(spec.argv)


def _refuse_name(name: str, *, displace: bool) -> None:
    """Raise CellblockError for a name that a new kernelspec may not have."""
    if not _NAME.fullmatch(name):
        raise CellblockError(
            f"{name!r} can't name a kernel: use a to z, digits, dot, dash and underscore (--name)."
        )
    if name in SHIPPED:
        raise CellblockError(f"{name} comes with the package: choose another --name.")
    if not displace and _is_ours(name) is False:
        raise CellblockError(f"{name} is another kernel: choose another --name.")


def _is_ours(name: str) -> bool | None:
    """Return whether the kernelspec of this name starts cellblock; None if there is none."""
    spec = find(name)
    return None if spec is None else _starts_cellblock(spec)


def _logos(shipped: str) -> list[Path]:
    """Return the logos of a shipped kernelspec; none if it is not installed."""
    spec = find(shipped)
    logos = [] if spec is None else [Path(spec.resource_dir, logo) for logo in LOGOS]
    return [logo for logo in logos if logo.is_file()]
