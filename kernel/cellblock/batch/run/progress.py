"""How a run goes, as it goes: a line a notebook, and on a terminal a bar below them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.batch.formats.inert import one_line
from cellblock.batch.run import wording
from cellblock.batch.run.fate import Fate

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from rich.console import Console
    from rich.progress import Progress, TaskID

    from cellblock.batch.run.fate import Record

_ENDING: Final = "Ending: what runs is interrupted, and then killed."
#: Names that stand beside the bar.
_NAMES: Final = 3


class Lines:
    """For CI, and whatever else is no terminal: what has ended, each in its own lines."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def begun(self, name: str) -> None:
        """Say nothing: it will end."""

    def ended(self, record: Record) -> None:
        """Say how it ended."""
        self._print(wording.told(record))

    def stopping(self) -> None:
        """Say what is waited for."""
        self._print(_ENDING)

    def said(self, text: str) -> None:
        """Say it."""
        self._print(one_line(text))

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Bar:
    """For a terminal: a bar with what runs now, and above it what did not pass."""

    def __init__(self, console: Console, total: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415
        from rich.progress import TimeElapsedColumn as Elapsed  # noqa: PLC0415

        columns = (BarColumn(), MofNCompleteColumn(), Elapsed(), TextColumn("{task.description}"))
        self._progress: Progress = Progress(*columns, console=console, transient=True)
        self._task: TaskID = self._progress.add_task("", total=total)
        self._running: dict[str, None] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def begun(self, name: str) -> None:
        """Show that it runs."""
        self._running[name] = None
        self._show()

    def ended(self, record: Record) -> None:
        """Go on by one; say what did not pass."""
        self._running.pop(record.notebook, None)
        if record.fate is not Fate.passed:
            self._print(wording.told(record))
        self._progress.advance(self._task)
        self._show()

    def stopping(self) -> None:
        """Say what is waited for."""
        self._print(_ENDING)

    def said(self, text: str) -> None:
        """Say it."""
        self._print(one_line(text))

    def _print(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _show(self) -> None:
        from rich.markup import escape  # noqa: PLC0415 - imported by then

        names = [one_line(name) for name in list(self._running)[:_NAMES]]
        more = [f"and {len(self._running) - _NAMES} more"] if len(self._running) > _NAMES else []
        self._progress.update(self._task, description=escape(", ".join(names + more)))
