"""A session's artifacts: what is copied out after each cell, in steps that hold nobody up."""

from __future__ import annotations

import contextlib
import time
import traceback
from typing import TYPE_CHECKING, Final

from cellblock.host.artifacts import Artifact, Exported, Skipped
from cellblock.host.artifacts.search import Search, TooMany, open_folder
from cellblock.host.artifacts.shelf import Shelf, Unfit

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from cellblock.host.artifacts.patterns import Patterns
    from cellblock.host.artifacts.search import Entry, State
    from cellblock.host.artifacts.shelf import Copied
    from cellblock.host.session.types import Reactor

#: Seconds that one step takes.
STEP: Final = 0.02
#: Files that are copied of one cell and of a session, and that are told of as left out.
MOST_OF_A_CELL: Final = 200
MOST_OF_A_SESSION: Final = 2_000
MOST_SKIPPED: Final = 50
Key = tuple[str, str]


class Exports:
    """``roots`` are the folders that cells may write, canonical and none within another.

    ``path`` is where copies go. ``most`` are bytes of one file, ``most_in_all`` of all that the
    session has there; None is no limit.
    """

    def __init__(  # noqa: PLR0913 - what it stands between
        self,
        reactor: Reactor,
        roots: tuple[str, ...],
        patterns: Patterns,
        path: str,
        *,
        most: int | None,
        most_in_all: int | None,
        opener: Callable[[str], int] = open_folder,
    ) -> None:
        self._reactor, self._roots, self._patterns = reactor, roots, patterns
        self._opener, self._most_in_all = opener, most_in_all
        self._shelf = Shelf(path, most)
        #: Files as they were when they were last looked at; None before that.
        self._known: dict[Key, State] | None = None
        self._copies: dict[Key, Copied] = {}
        self._closed = False

    def begin(self) -> None:
        """Take note of what is there before the first cell: it is nobody's artifact."""
        if self._known is None:
            self._known = {}
            # What is too much to be seen counts as new.
            with contextlib.suppress(TooMany):
                for entry in self.search():
                    if entry is not None:
                        self._known[entry.key] = entry.state

    def after_cell(self, done: Callable[[Exported], None]) -> None:
        """Copy out what is new or changed; ``done`` gets that, at once where it is little."""
        found = Exporting(self)
        steps = found.run()

        def go_on() -> None:
            try:
                until = time.monotonic() + STEP
                for _ in steps:
                    if self._closed:
                        return
                    if time.monotonic() > until:
                        self._reactor.call_later(0, go_on)
                        return
            except Exception:  # noqa: BLE001 - a fault of ours costs artifacts, not the cell's end
                traceback.print_exc()
            done(found.result())

        go_on()

    def close(self) -> None:
        """Copy nothing more."""
        self._closed = True
        self._shelf.close()

    # --- for Exporting ------------------------------------------------------------------------

    def search(self) -> Iterator[Entry | None]:
        """Yield what is meant, and None in between. Raises TooMany."""
        return Search(self._roots, self._patterns, self._opener).run()

    def known(self) -> dict[Key, State]:
        """Return what was there at the last look."""
        return self._known or {}

    def know(self, seen: dict[Key, State]) -> None:
        """Take note of what is there now."""
        self._known = seen

    def copy(self, entry: Entry) -> Generator[None, None, Artifact]:
        """Copy a file; return what it is now. Raises Unfit, OSError."""
        earlier = self._copies.get(entry.key)
        if earlier is None and len(self._copies) >= MOST_OF_A_SESSION:
            raise Unfit(f"the session has copied {MOST_OF_A_SESSION:,} already")
        copied = yield from self._shelf.put(entry, self._room(earlier), earlier)
        self._copies[entry.key] = copied
        return Artifact(
            name=copied.name,
            path=f"{self._shelf.path}/{copied.name}",
            size_bytes=copied.size,
            content_type=copied.kind,
            sha256=copied.sha256,
        )

    def _room(self, earlier: Copied | None) -> int | None:
        if self._most_in_all is None:
            return None
        taken = sum(copy.size for copy in self._copies.values())
        return max(0, self._most_in_all - taken + (earlier.size if earlier else 0))


class Exporting:
    """One cell's."""

    def __init__(self, exports: Exports) -> None:
        self._exports = exports
        self._artifacts: list[Artifact] = []
        self._skipped: list[Skipped] = []
        self._uncounted = False

    def run(self) -> Generator[None, None, None]:
        """Copy; yields where others may have their turn."""
        before = self._exports.known()
        seen: dict[Key, State] = {}
        try:
            for entry in self._exports.search():
                yield
                if entry is not None:
                    seen[entry.key] = entry.state
                    if before.get(entry.key) != entry.state:
                        yield from self._take(entry)
        except TooMany:
            self._uncounted = True
        self._exports.know(seen)

    def _take(self, entry: Entry) -> Generator[None, None, None]:
        if len(self._artifacts) >= MOST_OF_A_CELL:
            self._uncounted = True
            return
        try:
            self._artifacts.append((yield from self._exports.copy(entry)))
        except Unfit as exc:
            self._skip(entry, str(exc))
        except OSError as exc:
            self._skip(entry, f"it can't be copied: {exc.strerror}")

    def _skip(self, entry: Entry, why: str) -> None:
        if len(self._skipped) < MOST_SKIPPED:
            self._skipped.append(Skipped(_readable(entry.path), why))
        else:
            self._uncounted = True

    def result(self) -> Exported:
        """Return what came of it."""
        return Exported(tuple(self._artifacts), tuple(self._skipped), self._uncounted)


def _readable(path: str) -> str:
    return path.encode("utf-8", "replace").decode()
