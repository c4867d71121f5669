"""Calls of the guest's own that the audit hook lets pass, and no cell may make."""

from __future__ import annotations

from _thread import get_ident
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def _exemption() -> tuple[Callable[..., Any], Callable[[], bool]]:
    threads: list[int] = []  # in a closure: there is no table to edit

    def run_exempt(action: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        threads.append(get_ident())
        try:
            return action(*args, **kwargs)
        finally:
            threads.remove(get_ident())

    return run_exempt, lambda: get_ident() in threads


#: Call an action that runs nothing of a cell's; whether this thread is in one.
run_exempt, is_exempt = _exemption()
