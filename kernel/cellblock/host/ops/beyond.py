"""What a call asks for beyond what the policy grants, told from how that is spelled.

For the host, before anybody is asked about a call. Nothing is opened, resolved or sent: the worker
judges whatever is allowed again, with all that only it finds out, as where a link leads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from cellblock.host.ops import addresses, beneath, catalog, urls
from cellblock.host.ops.errors import OperationError, not_granted
from cellblock.host.tools.provider import Answer
from cellblock.policy.hosts import is_address
from cellblock.wire import values

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.host.ops.settings import Settings
    from cellblock.host.tools.provider import Call


def answer(call: Call, granted: Settings) -> Answer | None:
    """Return what a call of an operation is answered that is refused anyhow; None for others.

    What is no call of its signature is none of this one's matter: the worker says so.
    """
    try:
        args, kwargs = values.decode(call.arguments)
        _check(call.tool.name, list(args), dict(kwargs), granted)
    except OperationError as exc:
        return Answer(kind=exc.kind, message=exc.message)
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError):
        return None
    return None


def _check(name: str, args: list[Any], kwargs: dict[Any, Any], granted: Settings) -> None:
    """Raise OperationError for what is not granted, ValueError for arguments of another kind."""
    table = getattr(granted, name.removeprefix(catalog.PREFIX), None)
    if table is None:
        return
    if name == catalog.HTTP.name:
        url, method = _text(args, kwargs, "url"), kwargs.get("method", "GET")
        _check_request(urls.Grants(table), method, urls.read(url))
    elif name == catalog.INSTALL.name:
        _check_packages(map(_as_text, args), table.allow)
    else:
        path = _text(args, kwargs, "path", "." if name == catalog.LIST_DIR.name else None)
        roots = beneath.Roots(name, table.roots, project=granted.project, denied=granted.denied)
        roots.spelled(path, of_file=name == catalog.WRITE_FILE.name)


def _text(args: list[Any], kwargs: dict[Any, Any], name: str, default: str | None = None) -> str:
    return _as_text(args[0] if args else kwargs.get(name, default))


def _as_text(value: Any) -> str:
    """Return a text as the worker takes it, which takes bytes, too. Raises ValueError."""
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise ValueError("no text")  # noqa: TRY004 - of a cell's, and caught here
    return value


def _check_request(grants: urls.Grants, method: Any, url: urls.Url) -> None:
    private = grants.check(_as_text(method), url)
    said = [url.host.strip("[]")] if is_address(url.host) else []
    if why := addresses.refusal(said, private=private):
        raise not_granted(f"{url.host}: {why}")


def _check_packages(asked: Iterable[str], allow: Iterable[str]) -> None:
    from cellblock.host.ops import install  # noqa: PLC0415 - few cells ask for packages

    install.check_names(asked, allow)
