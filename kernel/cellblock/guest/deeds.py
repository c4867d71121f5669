"""What the guest does itself just now, which the audit hook lets pass and no cell may do."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


def _deeds() -> tuple[Callable[[], AbstractContextManager[None]], Callable[[], bool]]:
    under_way: list[bool] = []  # in a closure: there is no table to edit

    @contextmanager
    def doing() -> Iterator[None]:
        under_way.append(True)
        try:
            yield
        finally:
            if under_way:  # a fork begins anew
                under_way.pop()

    def is_doing() -> bool:
        return bool(under_way)

    return doing, is_doing


#: A context for what is done, and whether anything is just now.
doing, is_doing = _deeds()
