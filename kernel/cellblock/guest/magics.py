"""What ``get_ipython()`` answers to cells under the language layer: magics, not the shell.

The source check lets only its magic-call shapes pass, and a cell that gets at the function by a
name that the check did not see finds no more than that: whatever it calls is judged here again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.getipython import get_ipython

from cellblock.analysis import analyse
from cellblock.guest.guards.access import text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.analysis import Rules


def answer_for(rules: Rules) -> Callable[[], Any]:
    """Return the ``get_ipython`` of user code: the real one where there is no language layer."""
    if not rules.language:
        return get_ipython

    def admit(method: str, *arguments: str) -> Any:
        spelt = ", ".join(map(repr, arguments))
        if findings := analyse(f"get_ipython().{method}({spelt})", rules):
            from IPython.core.error import UsageError  # noqa: PLC0415

            first = findings[0]
            raise UsageError(f"{first.rule}: {first.subject} {first.why}")
        return get_ipython()

    class Magics:
        """Runs magics that the policy allows."""

        __slots__ = ()

        def run_line_magic(self, name: str, line: str) -> Any:
            """Run ``%name line``."""
            name, line = map(text_of, (name, line))
            return admit("run_line_magic", name, line).run_line_magic(name, line, 2)

        def run_cell_magic(self, name: str, line: str, cell: str) -> Any:
            """Run ``%%name line`` over ``cell``."""
            name, line, cell = map(text_of, (name, line, cell))
            return admit("run_cell_magic", name, line, cell).run_cell_magic(name, line, cell)

    magics = Magics()
    return lambda: magics
