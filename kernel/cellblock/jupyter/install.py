"""Installing kernelspecs, so that an operator's policy is a kernel in Jupyter's launcher.

The wheel brings two kernelspecs; this writes more like them.
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

#: Entry point of ``provisioner``. jupyter_client hides a kernelspec that names an unknown one.
PROVISIONER: Final = "cellblock-provisioner"
#: Subfolder of a kernelspec of ours that holds the one it stands in for.
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
    """Return the kernelspec that starts the kernel under ``policy``, loaded from ``spec``.

    ``shared`` says that it is for several users: their own packages, and what Python runs of theirs
    at its start (``usercustomize``), are left out. With ``warm`` a server has one wait, and finds
    the kernelspec only if cellblock is installed beside it.

    Without ``allow_unsafe`` the kernel asks its user where that has to be asked for. The
    interpreter, a policy file and one of inputs are named by absolute paths, so the kernelspec
    works from any environment's Jupyter.
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
    """Return what a kernel's command calls a policy: a preset, or a file by its absolute path."""
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
    """Check the policy and install a kernelspec for it; return its name and folder.

    It goes into Jupyter's data folder below ``prefix``, or the user's. ``inputs`` is a file of what
    its cells find in ``inputs``. With ``displace`` it may take another kernel's name; a kernelspec
    that is in its folder is kept inside. Unless ``warm`` says, a server has one wait where only
    those of this environment look for kernels there. Raises PolicyError for a policy that can't be
    loaded, InputError for such a file, CellblockError for a name that is not one, or is that of
    another kernel.
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
        folder = Path(private, name)  # its mode, which is copied, lets others in
        folder.mkdir()
        content = kernel_json(policy, spec, allow_unsafe=allow_unsafe, **own)
        (folder / "kernel.json").write_text(json.dumps(content, indent=1) + "\n", "utf-8")
        for logo in _logos("cellblock-data" if policy.allowed_modules else "cellblock"):
            shutil.copy(logo, folder)
        if displace:
            _keep_displaced(_folder(name, prefix), folder)
        written = KernelSpecManager().install_kernel_spec(
            str(folder), name, user=prefix is None, prefix=None if prefix is None else str(prefix)
        )
    return name, Path(written)


def uninstall(name: str) -> Path:
    """Remove a kernelspec that ``install`` wrote; return the folder it was in.

    One that it stood in for is put back. Raises CellblockError when none of cellblock has that
    name, and for the two that belong to the package.
    """
    if name in SHIPPED:
        raise CellblockError(f"{name} comes with the package: `pip uninstall cellblock`.")
    folders = [Path(kernels, name) for kernels in KernelSpecManager().kernel_dirs]
    folder = next(filter(_is_ours_in, folders), None)
    if folder is None:
        raise CellblockError(
            f"No cellblock kernel is called {name!r}. See `jupyter kernelspec list`."
        )
    kept = folder.with_name(f".{name}-{DISPLACED}")
    if (folder / DISPLACED).is_dir():
        (folder / DISPLACED).rename(kept)
    shutil.rmtree(folder)
    if kept.is_dir():
        kept.rename(folder)
    return folder


def find(name: str) -> KernelSpec | None:
    """Return the kernelspec that Jupyter finds by that name, if any."""
    try:
        return KernelSpecManager().get_kernel_spec(name)
    except NoSuchKernel:
        return None


def installed_policies() -> tuple[str, ...]:
    """Return the policies of the kernels that Jupyter offers, as their commands name them."""
    found = dict[str, None]()
    for _, each in sorted(KernelSpecManager().get_all_specs().items()):
        with contextlib.suppress(SystemExit):  # a kernel that does not start
            if (options := options_of(each["spec"]["argv"])) is not None:
                found[options.policy] = None
    return tuple(found)


def default_prefix() -> Path | None:
    """Return below what Jupyter looks for kernels first: this environment, or None for the user."""
    return Path(sys.prefix) if prefer_environment_over_user() else None


def is_this_environment(prefix: Path | None) -> bool:
    """Whether only this environment's servers look for kernelspecs below a prefix."""
    if prefix is None or prefix.resolve() != Path(sys.prefix).resolve():
        return False
    return str(prefix / "share" / "jupyter") not in SYSTEM_JUPYTER_PATH


def _folder(name: str, prefix: Path | None) -> Path:
    """Return where Jupyter installs the kernelspec ``name``."""
    data = jupyter_data_dir() if prefix is None else prefix / "share" / "jupyter"
    return Path(data, "kernels", name)


def _keep_displaced(there: Path, made: Path) -> None:
    """Copy the kernelspec ``there`` into the one being ``made``, or what that had kept already."""
    if _is_ours_in(there):
        there /= DISPLACED
    if (there / "kernel.json").is_file():
        shutil.copytree(there, made / DISPLACED)


def _is_ours_in(folder: Path) -> bool:
    try:
        return _starts_cellblock(KernelSpec.from_resource_dir(str(folder)))
    except (OSError, ValueError, TraitError):
        return False


def _starts_cellblock(spec: KernelSpec) -> bool:
    return ("-m", "cellblock") in pairwise(spec.argv)


def _refuse_name(name: str, *, displace: bool) -> None:
    if not _NAME.fullmatch(name):
        raise CellblockError(
            f"{name!r} can't name a kernel: use a to z, digits, dot, dash and underscore (--name)."
        )
    if name in SHIPPED:
        raise CellblockError(f"{name} comes with the package: choose another --name.")
    if not displace and _is_ours(name) is False:
        raise CellblockError(f"{name} is another kernel: choose another --name.")


def _is_ours(name: str) -> bool | None:
    """Return whether the kernelspec of that name starts cellblock; None when there is none."""
    spec = find(name)
    return None if spec is None else _starts_cellblock(spec)


def _logos(shipped: str) -> list[Path]:
    """Return the logos of a shipped kernelspec, or none where it is not installed."""
    spec = find(shipped)
    logos = [] if spec is None else [Path(spec.resource_dir, logo) for logo in LOGOS]
    return [logo for logo in logos if logo.is_file()]
