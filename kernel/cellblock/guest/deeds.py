"""What the guest does itself just now, which the audit hook lets pass and no cell may do."""

from __future__ import annotations

from _thread import get_ident
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def _deeds() -> tuple[Callable[..., Any], Callable[[], bool]]:
    threads: list[int] = []  # in a closure: there is no table to edit

    def permitted(action: Callable[..., Any], *args: Any) -> Any:
        threads.append(get_ident())
        try:
            return action(*args)
        finally:
            threads.pop()

    return permitted, lambda: get_ident() in threads


#: Calls an action that runs nothing of a cell's; says whether this thread is in one.
permitted, is_permitted = _deeds()
