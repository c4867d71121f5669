"""Magics that ask the host for what it knows, or does: ``%policy``, ``%undo`` and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from cellblock.analysis.magics import without_comment
from cellblock.guest.shell import register_magic
from cellblock.guest.text import encodable
from cellblock.wire import messages

if TYPE_CHECKING:
    from cellblock.guest.display import Out
    from cellblock.guest.serve import Server

#: Of a number of cells to step back over, one too many.
_DIGITS = 10
#: Characters of a magic's argument that are passed on.
_MOST_ARGUMENT = 100


class Asking:
    """``servers`` has the one that serves, once this is a guest; ``out`` is to be set then."""

    out: Out

    def __init__(self, shell: Any, servers: list[Server]) -> None:
        self._servers = servers
        register_magic(shell, "policy", self._show_policy)
        register_magic(shell, "undo", self._undo)
        register_magic(shell, "output", self._show_output)
        register_magic(shell, "usage", self._show_usage)
        register_magic(shell, "tools", self._show_tools)
        register_magic(shell, "template", self._show_templates)

    def _show_policy(self, line: str) -> None:
        """Show the policy in force; %policy narrow timeout=10, in a cell of its own, narrows it."""
        if without_comment(line):
            # The host settles a narrowing before a cell comes here.
            raise UsageError("%policy takes nothing; %policy narrow stands in a cell of its own")
        self.out.send(messages.ShowPolicy())

    def _undo(self, line: str) -> None:
        """Step back to the state before the last cell that ran; ``%undo 3`` over three cells."""
        steps = line.partition("#")[0].strip() or "1"
        if not (steps.isascii() and steps.isdigit() and len(steps) < _DIGITS and int(steps)):
            raise UsageError(f"%undo takes a number of cells, not {steps!r}")
        if not self._servers[0].runs_cell:
            raise UsageError("%undo steps back from a cell, not from a handler or a task")
        self.out.send(messages.Undo(steps=int(steps)))

    def _show_output(self, line: str) -> None:
        """Page through what the host kept of a cell's output: %output 7, %output 7 stderr last."""
        self.out.send(messages.ShowOutput(argument=encodable(line[:_MOST_ARGUMENT])))

    def _show_tools(self, _line: str) -> None:
        """List the host tools that cells may call, with their signatures."""
        self.out.send(messages.ShowTools())

    def _show_templates(self, line: str) -> None:
        """List the shipped templates; %template NAME shows one. %%template NAME runs it."""
        self.out.send(messages.ShowTemplates(name=encodable(line.strip()[:_MOST_ARGUMENT])))

    def _show_usage(self, line: str) -> None:
        """Show what each cell of the session took: all, ``top`` or one by its number."""
        self.out.send(messages.ShowUsage(line=line.strip()[:20]))
