"""``functools.singledispatch`` that shows a cell's classes no others.

It looks through the subclasses of the registered classes, and compares each with what the metaclass
of the argument's class says. A cell's metaclass says what it likes: objects with every hash there
is were compared with, and so handed, every class of the process.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: Taken before the guards close; as the interpreter has them, whatever a metaclass says.
_subclasses: Callable[[type], list[type]] = type.__dict__["__subclasses__"]
_mro: Callable[[type], tuple[type, ...]]
_mro = type.__dict__["__mro__"].__get__
_merge: Callable[..., list[type]] = vars(functools)["_c3_mro"]


def harden() -> None:
    """Put ``compose_mro`` in the place of the library's."""
    vars(functools)["_compose_mro"] = compose_mro


def compose_mro(cls: type, types: Iterable[Any]) -> list[type]:
    """Return the order in which implementations for ``types`` are tried on ``cls``.

    The algorithm is that of ``functools._compose_mro``, which PEP 443 describes; classes are
    told apart by identity.
    """
    bases = _Identities(_mro(cls))
    related = [
        kind
        for kind in types
        if isinstance(kind, type) and kind not in bases and issubclass(cls, kind)
    ]
    # What is a base of another gets in by way of that one.
    related = [kind for kind in related if not any(_is_base(kind, other) for other in related)]
    registered, order = _Identities(related), list[type]()
    for kind in related:
        chains = list(_chains(cls, kind, bases, registered))
        chains.sort(key=len, reverse=True)
        for chain in chains or [[kind]]:
            order += [found for found in chain if found not in _Identities(order)]
    return _merge(cls, abcs=order)


class _Identities:
    """Which classes are among some, without asking them."""

    def __init__(self, classes: Iterable[type]) -> None:
        self._ids = {id(each) for each in classes}

    def __contains__(self, each: object) -> bool:
        return id(each) in self._ids


def _is_base(kind: type, other: type) -> bool:
    return kind is not other and kind in _Identities(_mro(other))


def _chains(
    cls: type, kind: type, bases: _Identities, registered: _Identities
) -> Iterator[list[type]]:
    """Yield the registered classes that each abstract base of ``cls`` beneath ``kind`` has."""
    if issubclass(kind, type):
        return  # whose subclasses are metaclasses
    for below in _subclasses(kind):
        if below not in bases and issubclass(cls, below):
            yield [each for each in _mro(below) if each in registered]
