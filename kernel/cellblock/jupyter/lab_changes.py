"""Staged changes as JupyterLab's extension shows them: listed, compared, kept and dropped.

What is kept is what was shown: the list has a digest of every file's content, and a request to keep
names it. As in a cell's ``%changes keep``, contents are compared once more while they are copied.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from cellblock.errors import ChangesError
from cellblock.host import threads
from cellblock.host.consent.approver import Decision
from cellblock.host.consent.request import of_keeping
from cellblock.host.services import changes, keeping
from cellblock.render.cards import count
from cellblock.render.text import visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from cellblock.host.audit.recorder import Audit
    from cellblock.host.cell.status import Views
    from cellblock.host.services.changes import Change, Kept, Staged, State
    from cellblock.jupyter.reactor import ZmqReactor

#: Files that are listed, and bytes of all whose content is read for the list.
MOST_FILES: Final = 500
_MOST_READ: Final = 256 << 20
#: Characters of a diff.
_MOST_DIFF: Final = 200_000
#: Seconds of one step of reading or copying; until a list is made while another one is; and how
#: many times as long as one took the next one waits, and how long at least.
_STEP: Final = 0.005
_AGAIN: Final = 1.0
_REST: Final = 20
_LEAST: Final = 0.25
#: Who kept a file, in the audit log.
BY: Final = "the panel"
_UNREAD: Final = "it is too large to be kept here, or changes just now: use %changes keep"
_YOURS: Final = "yours was changed meanwhile: use %changes keep"


class Listing(Struct, frozen=True):
    """What is staged, by the names it is shown under, with digests of what can be kept."""

    staged: Staged | None
    changes: Mapping[str, Change]
    digests: Mapping[str, str]
    digest: str = ""
    left_out: int = 0
    problem: str = ""

    def note(self, change: Change) -> str:
        """Return why a change can't be kept here, or nothing."""
        if change.why_not:
            return f"not kept: {change.why_not}"
        if change.yours_since is not None:
            return _YOURS
        return "" if change.kind == "deleted" or change.name in self.digests else _UNREAD


class StagedChanges:
    """What a kernel's cells staged; ``tell`` is called when there is a new list."""

    def __init__(
        self, views: Views, audit: Audit, reactor: ZmqReactor, tell: Callable[[], None]
    ) -> None:
        self._views = views
        self._audit = audit
        self._reactor = reactor
        self._tell = tell
        self._listing = Listing(None, {}, {})
        #: What makes a list: in a thread, since cells can lock the folders.
        self._read: threads.Work[Listing] | None = None
        self._keep = keeping.StepRunner(reactor, _STEP)
        #: Digests of files as they were when they were read.
        self._known: dict[str, tuple[State, str]] = {}
        #: When the next list may be made, and whether one is to be.
        self._next = 0.0
        self._waits = False

    def words(self) -> dict[str, Any]:
        """Return what a front end is told: the list that was made last."""
        one = self._listing
        files = [
            {
                "path": path,
                "kind": change.kind,
                "bytes": change.size,
                "note": visible(note := one.note(change)),
                "keepable": not note,
            }
            for path, change in one.changes.items()
        ]
        fields = {"digest": one.digest, "files": files, "left_out": one.left_out}
        return fields | {"problem": visible(one.problem)}

    # --- listing ------------------------------------------------------------------------------

    def look(self, *, soon: bool = False) -> None:
        """Make the list anew; ``soon``, where somebody waits for it."""
        if soon:
            self._next = 0.0
        if not self._waits:
            self._waits = True
            self._reactor.call_later(max(0.0, self._next - time.monotonic()), self._list)
        elif soon:
            self._reactor.call_later(0, self._list)

    def _list(self) -> None:
        if not self._waits:
            return
        self._waits = False
        if self._read is not None:
            self._next = time.monotonic() + _AGAIN
            self.look()
            return
        views = self._views
        self._next = time.monotonic() + _LEAST
        staged = views.listable()
        if staged is None:
            self._made(Listing(None, {}, {}))
            return

        def made(outcome: Future[Listing]) -> None:
            self._read = None
            try:
                self._made(outcome.result())
            except (ChangesError, OSError) as error:
                self._made(Listing(staged, {}, {}, problem=str(error)))

        read = partial(self._read_all, staged)
        self._read = threads.begin(self._reactor, read, made)

    def _read_all(self, staged: Staged) -> Listing:
        """Return the list of all that is staged, with digests."""
        if not staged.is_written_to():
            return Listing(None, {}, {})
        began = time.monotonic()
        found = staged.changes()
        now = time.monotonic()
        self._next = now + max(_LEAST, _REST * (now - began))
        digests = self._digests(staged, found)
        shown: dict[str, Change] = {}
        for one in found[:MOST_FILES]:
            shown.setdefault(visible(staged.label(one)), one)
        digest = of_keeping(found[:MOST_FILES], digests, ()).sha256
        return Listing(staged, shown, digests, digest, max(0, len(found) - MOST_FILES))

    def _digests(self, staged: Staged, found: Sequence[Change]) -> dict[str, str]:
        """Return the digests of what can be kept, reading only what is not known as it is."""
        digests = dict[str, str]()
        room = _MOST_READ
        for one in found[:MOST_FILES]:
            if one.why_not or one.kind == "deleted" or (one.size or 0) > room:
                continue
            room -= one.size or 0
            state, digest = self._known.get(one.name, (None, ""))
            if not digest or state != one.staged:
                try:
                    digest = changes.finish(keeping.digests(staged, [one]))[one.name]
                except ChangesError:  # it changes while it is read
                    continue
            digests[one.name] = digest
        self._known = {
            one.name: (one.staged, digests[one.name]) for one in found if one.name in digests
        }
        return digests

    def _made(self, listing: Listing) -> None:
        self._listing = listing
        self._tell()

    # --- what a front end asks ----------------------------------------------------------------

    def diff(self, path: str) -> str:
        """Return how a listed file differs. Raises ChangesError."""
        one = self._listing
        change = one.changes.get(path)
        staged = one.staged
        if change is None or staged is None:
            raise ChangesError(_no_such(path))
        text = visible_lines(staged.diff(change, one.digests.get(change.name, "")).text)
        more = len(text) - _MOST_DIFF
        return text if more <= 0 else f"{text[:_MOST_DIFF]}\n… {more:,} more characters"

    def keep(self, paths: Sequence[str], digest: str, done: Callable[[str, str], None]) -> None:
        """Keep listed files, or all that can be; ``done`` gets a problem, or what was done."""
        one = self._listing
        audit = self._audit
        try:
            staged, chosen = self._agreed(paths, digest)
        except ChangesError as error:
            self.look(soon=True)
            done(f"nothing was kept: {error}", "")
            return

        def kept(found: Sequence[Kept]) -> None:
            audit.kept(found, staged.session, BY)
            self.look(soon=True)
            done("", f"kept {count(len(found), 'file')}")

        def failed(why: str) -> None:
            self.look(soon=True)
            done(why, "")

        self._keep.run(keeping.steps(staged, chosen, one.digests), kept, failed)

    def _agreed(self, paths: Sequence[str], digest: str) -> tuple[Staged, list[Change]]:
        """Return what may be kept, once that is on the audit log. Raises ChangesError."""
        one = self._listing
        audit = self._audit
        staged = self._views.listable()
        if self._keep.runs:
            raise ChangesError("something is being kept: wait for that")
        chosen = self._chosen(paths)
        # What is staged now, under the policy that is in force now; contents are compared later.
        now = [] if staged is None else staged.changes([each.name for each in chosen])
        if staged is None or not digest or digest != one.digest or not set(chosen) <= set(now):
            raise ChangesError("it is not what was shown any more: look again")
        wanted = of_keeping(chosen, one.digests, paths)
        decision = Decision(scope="once", asked=True)
        if why := str(audit.barred() or "") or audit.approved(wanted, decision):
            raise ChangesError(why)
        return staged, chosen

    def _chosen(self, paths: Sequence[str]) -> list[Change]:
        """Return listed changes that can be kept. Raises ChangesError for one that can't."""
        one = self._listing
        chosen = []
        for path in dict.fromkeys(paths):
            change = one.changes.get(path)
            if change is None:
                raise ChangesError(_no_such(path))
            if note := one.note(change):
                raise ChangesError(f"{path}: {note}")
            chosen.append(change)
        if not paths:
            chosen = [change for change in one.changes.values() if not one.note(change)]
        if not chosen:
            raise ChangesError("there is nothing that could be kept")
        return chosen

    def drop(self, paths: Sequence[str]) -> str:
        """Drop listed files, or all; return what was done. Raises ChangesError, OSError."""
        one = self._listing
        if one.staged is None:
            raise ChangesError("nothing is staged")
        for path in paths:
            if path not in one.changes:
                raise ChangesError(_no_such(path))
        dropped = one.staged.drop([one.changes[path].name for path in paths])
        self.look(soon=True)
        return f"dropped {count(len(dropped), 'file')}"

    def close(self) -> None:
        """Take back what is not whole: the session ends."""
        if self._read is not None:
            self._read.forget()
        self._keep.stop()


def _no_such(path: str) -> str:
    return f"{visible(path)} is not in the list: look again"
