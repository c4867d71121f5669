"""The builtins that user code gets (requirement 1.4): an exact dict, so that lookups stay fast."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from cellblock.analysis.names import REFUSED_BUILTINS, REFUSED_UNLESS_BOUND
from cellblock.guest.guards import access

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Builtins that user code gets as they are. What is missing here is a NameError there.
ALLOWED = tuple(
    """
    Ellipsis False None NotImplemented True __build_class__ __debug__ abs aiter all anext any
    ascii bin bool bytearray bytes callable chr classmethod complex dict dir divmod enumerate
    filter float format frozenset hash hex id int isinstance issubclass iter len list map max
    memoryview min next object oct ord pow print property range repr reversed round set slice
    sorted staticmethod str sum super tuple type zip
    """.split()  # noqa: SIM905 - a table reads better
)


def build(import_: Callable[..., Any], extra: Mapping[str, object]) -> dict[str, object]:
    """Return the guarded builtins; ``extra`` (display, input, tools) wins over the defaults."""
    real = vars(builtins)
    space: dict[str, object] = {name: real[name] for name in ALLOWED}
    space.update((n, v) for n, v in real.items() if _is_exception(v))
    for name, (why, remedy) in {**REFUSED_BUILTINS, **REFUSED_UNLESS_BOUND}.items():
        space[name] = access.refused_builtin(name, why, remedy)
    space.update(
        __import__=import_,
        __name__="builtins",
        delattr=access.guarded_delattr,
        getattr=access.guarded_getattr,
        hasattr=access.guarded_hasattr,
        setattr=access.guarded_setattr,
        input=builtins.input,
    )
    space.update((n, v) for n, v in extra.items() if n != "getpass")
    return space


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)
