"""The functions behind what a policy grants, with their arguments checked. In the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pydantic

from cellblock.host.ops import catalog
from cellblock.host.ops.files import Lister, Reader, Writer
from cellblock.host.tools.registry import Registered

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.ops.settings import Settings


def load(settings: Settings) -> dict[str, Registered]:
    """Return what is granted, by name as cells have it."""
    found: dict[str, Callable[..., Any]] = {}
    if settings.read_file is not None:
        found["read_file"] = Reader(settings.read_file, settings).read_file
    if settings.write_file is not None:
        found["write_file"] = Writer(settings.write_file, settings).write_file
    if settings.list_dir is not None:
        found["list_dir"] = Lister(settings.list_dir, settings).list_dir
    if settings.http is not None:
        from cellblock.host.ops.fetch import Fetcher  # noqa: PLC0415 - httpx is an extra

        found["http"] = Fetcher(settings.http).http
    if settings.install is not None:
        from cellblock.host.ops.install import Installer  # noqa: PLC0415 - most need none

        found["install"] = Installer(settings.install).install
    return {
        f"{catalog.PREFIX}{name}": Registered(catalog.ALL[name], pydantic.validate_call(function))
        for name, function in found.items()
    }
