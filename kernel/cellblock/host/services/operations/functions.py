"""The functions behind what a policy grants, with their arguments checked. In the worker."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import pydantic

from cellblock.host.services.operations import catalog
from cellblock.host.services.operations.files import Lister, Reader, Writer
from cellblock.host.services.operations.urls import OperationError
from cellblock.host.services.tools.registry import RegisteredTool

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.services.operations.catalog import OperationGrants
    from cellblock.wire.messages import Tool


#: Arguments of a call, and entries of one: pydantic makes errors of all that do not fit, and no
#: time limit counts before it has.
_MOST: Final = 1_000


def load(settings: OperationGrants) -> dict[str, RegisteredTool]:
    """Return what is granted, by name as cells have it."""
    found: dict[str, Callable[..., Any]] = {}
    if settings.read_file is not None:
        found["read_file"] = Reader(settings.read_file, settings).read_file
    if settings.write_file is not None:
        found["write_file"] = Writer(settings.write_file, settings).write_file
    if settings.list_dir is not None:
        found["list_dir"] = Lister(settings.list_dir, settings).list_dir
    if settings.http is not None:
        from cellblock.host.services.operations.http import Fetcher  # noqa: PLC0415 - httpx is an extra

        found["http"] = Fetcher(settings.http).http
    if settings.install is not None:
        from cellblock.host.services.operations.packages import Installer  # noqa: PLC0415 - most need none

        found["install"] = Installer(settings.install).install
    return {
        f"{catalog.PREFIX}{name}": RegisteredTool(
            tool := catalog.ALL[name], _checked(tool, function)
        )
        for name, function in found.items()
    }


def _checked(tool: Tool, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that raises OperationError for too many arguments, or too many in one.

    Otherwise ``pydantic.ValidationError`` for what does not fit.
    """
    checked = pydantic.validate_call(function)

    @functools.wraps(function)
    async def asynchronous(*args: Any, **kwargs: Any) -> Any:
        _refuse_many(tool, args, kwargs)
        return await checked(*args, **kwargs)

    @functools.wraps(function)
    def synchronous(*args: Any, **kwargs: Any) -> Any:
        _refuse_many(tool, args, kwargs)
        return checked(*args, **kwargs)

    return asynchronous if tool.is_async else synchronous


def _refuse_many(tool: Tool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if (many := len(args) + len(kwargs)) > _MOST:
        said = f"it is given {many:,} arguments; {_MOST:,} may be"
        raise OperationError("ValueError", said)
    for one in tool.parameters:
        given = kwargs.get(one.name)
        # What may be anything is not read.
        if isinstance(given, dict | list) and len(given) > _MOST and one.annotation != "Any":
            said = f"{one.name} has {len(given):,} entries; {_MOST:,} may be given"
            raise OperationError("ValueError", said)
