"""Names of allowed modules that user code gets in a guarded form."""

from __future__ import annotations

import contextlib
import operator
import reprlib
import warnings
from typing import TYPE_CHECKING, Any

from cellblock.guest.guards.access import check_name
from cellblock.guest.guards.violations import OperationViolation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_attrgetter, _methodcaller = operator.attrgetter, operator.methodcaller


def replacements(extra: Mapping[str, object]) -> Mapping[tuple[str, str], object]:
    """Return (module, name) to what user code finds there."""
    # Not the library's own: a method that a cell put there would be handed what libraries show.
    shortened = reprlib.Repr()
    table: dict[tuple[str, str], object] = {
        ("logging", "basicConfig"): basic_config,
        ("operator", "attrgetter"): attrgetter,
        ("operator", "methodcaller"): methodcaller,
        ("reprlib", "aRepr"): shortened,
        ("reprlib", "repr"): shortened.repr,
        ("warnings", "catch_warnings"): catch_warnings,
    }
    if "getpass" in extra:
        table["getpass", "getpass"] = extra["getpass"]
    return table


def attrgetter(attr: str, /, *attrs: str) -> Callable[[Any], Any]:
    """Do as ``operator.attrgetter`` does, for allowed names."""
    get = _attrgetter(*(_path(text) for text in (attr, *attrs)))
    # Not the object itself: its class, which type() tells, takes any name.
    return lambda obj: get(obj)  # noqa: PLW0108 - see above


def _path(text: str) -> str:
    if not isinstance(text, str):
        raise TypeError("attribute name must be a string")
    return ".".join(check_name(name) for name in str.__str__(text).split("."))


def methodcaller(name: str, /, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """Do as ``operator.methodcaller`` does, for allowed names."""
    call = _methodcaller(check_name(name), *args, **kwargs)
    return lambda obj: call(obj)  # noqa: PLW0108 - as above


def basic_config(**kwargs: Any) -> None:
    """Do as ``logging.basicConfig`` does, for streams."""
    import logging  # noqa: PLC0415 - most cells never log

    if kwargs.get("filename") is not None:
        why, remedy = "opens a log file", "Log to the default stream, or to an io.StringIO."
        raise OperationViolation("module-name-not-allowed", "logging.basicConfig", why, remedy)
    logging.basicConfig(**kwargs)


@contextlib.contextmanager
def catch_warnings(*, record: bool = False, **filters: Any) -> Iterator[Any]:
    """Do as ``warnings.catch_warnings`` does; that one's instances hold the module itself."""
    filters.pop("module", None)
    with warnings.catch_warnings(record=record, **filters) as log:
        yield log
