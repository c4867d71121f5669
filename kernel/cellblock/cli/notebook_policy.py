"""The policies of ``cellblock check`` and ``run`` where none is named: of each notebook's kernel.

A notebook can choose among installed kernels only. A script has the policy of the notebooks around
it: those below the nearest folder above it that has some.
"""

from __future__ import annotations

import contextlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from jupyter_core.paths import jupyter_path

from cellblock.batch import files
from cellblock.batch.verdict import FileKind
from cellblock.jupyter.start import options_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NotebooksPolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy", metavar="NAME|FILE", help="Default: that of each notebook's kernel, or safe."
    ),
]
_DEFAULT: Final = "safe"
_NAME: Final = re.compile(r"[a-z0-9._-]{1,100}")


class _Command(msgspec.Struct):
    """Of a kernelspec, what starts the kernel."""

    argv: list[str] = []


class _Kernelspec(msgspec.Struct):
    name: str = ""


class _Metadata(msgspec.Struct):
    kernelspec: _Kernelspec = msgspec.field(default_factory=_Kernelspec)


class _Notebook(msgspec.Struct):
    """Of a notebook, what says which kernel it is for."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def policies_of(found: Sequence[files.File]) -> tuple[dict[files.File, str], list[files.File]]:
    """Return the policy of each file: ``safe`` where no kernel of ours says another.

    And the scripts that have that since notebooks of several policies are around them.
    """
    policies = dict[files.File, str]()
    for file in found:
        if file.kind is FileKind.notebook:
            content = b""
            with contextlib.suppress(OSError, files.NoFileError):  # they are told later
                content = files.read(file)
            policies[file] = policy_of(content)
    around = _policies_by_folder(policies.items())
    undecided = list[files.File]()
    for file in found:
        if file.kind is not FileKind.notebook:
            folders = Path(files.absolute(file.path)).parents
            near = next((around[one] for one in folders if one in around), {_DEFAULT})
            policies[file] = next(iter(near)) if len(near) == 1 else _DEFAULT
            undecided += [file] if len(near) > 1 else []
    return policies, undecided


def _policies_by_folder(policies: Iterable[tuple[files.File, str]]) -> dict[Path, set[str]]:
    """Return the policies of the notebooks below each folder."""
    around = dict[Path, set[str]]()
    for file, policy in policies:
        for folder in Path(files.absolute(file.path)).parents:
            around.setdefault(folder, set()).add(policy)
    return around


def policy_of(notebook: bytes) -> str:
    """Return the policy of the kernel that a notebook of this content names."""
    try:
        name = msgspec.json.decode(notebook, type=_Notebook).metadata.kernelspec.name
    except msgspec.DecodeError:  # whoever reads it as a whole says what is wrong
        return _DEFAULT
    return _policy_of_kernel(name.lower())


@cache
def _policy_of_kernel(name: str) -> str:
    """Return the policy in the kernelspec that Jupyter finds by this name.

    It is read here: to import jupyter_client for it takes half as long as a small check.
    """
    if not _NAME.fullmatch(name):
        return _DEFAULT
    found = (Path(kernels, name, "kernel.json") for kernels in jupyter_path("kernels"))
    spec = next((path for path in found if path.is_file()), None)
    try:
        argv = [] if spec is None else msgspec.json.decode(spec.read_bytes(), type=_Command).argv
        options = options_of(argv)
    except (OSError, msgspec.DecodeError, SystemExit):  # a kernel that does not start
        return _DEFAULT
    return _DEFAULT if options is None else options.policy
