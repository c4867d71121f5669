"""Makes tools of the granted operations, in the worker that runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cellblock.host.services.operations import catalog, files
from cellblock.host.services.tools.registry import with_validation
from cellblock.policy import operations

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.services.operations.grants import OperationGrants
    from cellblock.host.services.tools.registry import RegisteredTool


def load(grants: OperationGrants) -> dict[str, RegisteredTool]:
    """Return the granted operations, by the names that cells call: ``ops.http``."""
    section = operations.Operations.of_values(grants.tables)
    of_files = files.Files(section, project=grants.project, denied=grants.denied)
    functions: dict[str, Callable[..., Any]] = {
        name: getattr(of_files, name) for name in section.with_roots()
    }
    if section.http is not None:
        from cellblock.host.services.operations.http import Fetcher  # noqa: PLC0415 - of an extra

        functions["http"] = Fetcher(section.http, credentials=grants.credentials).http
    if section.install is not None:
        from cellblock.host.services.operations.packages import Installer  # noqa: PLC0415 - start time

        functions["install"] = Installer(section.install, grants.packages).install
    return {
        f"{catalog.PREFIX}{name}": with_validation(catalog.ALL[name], function)
        for name, function in functions.items()
    }
