"""``StagedChanges``: staged changes for JupyterLab's extension: listed, compared, kept, dropped.

What is kept is exactly what the user saw. The list has digests of the files' contents, and a digest
of all of it, which a request to keep must name. While files are copied their contents are compared
once more, as in a cell's ``%changes keep``.

Lists are made in a thread, since cells may keep the folders locked; keeping and dropping run in the
loop, in short steps.
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

#: Files that are listed.
MOST_FILES: Final = 500
#: Bytes of all files whose content is read for the list.
_MOST_READ: Final = 256 << 20
#: Characters of a diff.
_MOST_DIFF: Final = 200_000
#: Seconds of one step of copying.
_STEP: Final = 0.005
#: Seconds until the next attempt if another list is being made.
_RETRY_SECONDS: Final = 1.0
#: The next list waits so many times as long as the last one took.
_REST_FACTOR: Final = 20
#: Seconds that it waits at least.
_LEAST_SECONDS: Final = 0.25
#: The name of who kept a file, in the audit log.
BY: Final = "the panel"
_UNREAD: Final = "it is too large to be kept here, or changes just now: use %changes keep"
_YOURS_CHANGED: Final = "yours was changed meanwhile: use %changes keep"


class Listing(Struct, frozen=True):
    """A list of staged changes, as the user sees it."""

    staged: Staged | None
    #: The changes by the names that they are shown under.
    changes: Mapping[str, Change]
    #: The digests of contents that can be kept, by the changes' own names.
    digests: Mapping[str, str]
    #: The digest of the whole list.
    digest: str = ""
    #: How many changes the list leaves out.
    left_out: int = 0
    #: Why there is no list.
    problem: str = ""

    def note(self, change: Change) -> str:
        """Return why a change can't be kept from here; empty if it can."""
        if change.why_not:
            return f"not kept: {change.why_not}"
        if change.yours_since is not None:
            return _YOURS_CHANGED
        return "" if change.kind == "deleted" or change.name in self.digests else _UNREAD


class StagedChanges:
    """The staged changes of a kernel. ``tell`` is called when there is a new list."""

    def __init__(
        self, views: Views, audit: Audit, reactor: ZmqReactor, tell: Callable[[], None]
    ) -> None:
        self._views = views
        self._audit = audit
        self._reactor = reactor
        self._tell = tell
        self._listing = Listing(None, {}, {})
        #: The thread that makes a list, while it runs.
        self._read: threads.Work[Listing] | None = None
        self._keep = keeping.StepRunner(reactor, _STEP)
        #: The digests of files, with their state when they were read.
        self._known: dict[str, tuple[State, str]] = {}
        #: When the next list may be made.
        self._next = 0.0
        #: Whether a list is due, and a timer is set for it.
        self._waits = False

    def words(self) -> dict[str, Any]:
        """Return the view "changes": the list that was made last."""
        listing = self._listing
        files = [
            {
                "path": path,
                "kind": change.kind,
                "bytes": change.size,
                "note": visible(note := listing.note(change)),
                "keepable": not note,
            }
            for path, change in listing.changes.items()
        ]
        fields = {"digest": listing.digest, "files": files, "left_out": listing.left_out}
        return fields | {"problem": visible(listing.problem)}

    # --- listing ------------------------------------------------------------------------------

    def look(self, *, soon: bool = False) -> None:
        """Make the list anew, when it is time for that, or ``soon`` if somebody waits for it."""
        if soon:
            self._next = 0.0
        if not self._waits:
            self._waits = True
            self._reactor.call_later(max(0.0, self._next - time.monotonic()), self._list)
        elif soon:
            self._reactor.call_later(0, self._list)

    def _list(self) -> None:
        """Begin to make a list in a thread, or wait for the thread that runs."""
        if not self._waits:
            return
        self._waits = False
        if self._read is not None:
            self._next = time.monotonic() + _RETRY_SECONDS
            self.look()
            return
        views = self._views
        self._next = time.monotonic() + _LEAST_SECONDS
        staged = views.listable()
        if staged is None:
            self._take_listing(Listing(None, {}, {}))
            return

        def made(outcome: Future[Listing]) -> None:
            self._read = None
            try:
                self._take_listing(outcome.result())
            except (ChangesError, OSError) as error:
                self._take_listing(Listing(staged, {}, {}, problem=str(error)))

        read_all = partial(self._read_all, staged)
        self._read = threads.begin(self._reactor, read_all, made)

    def _read_all(self, staged: Staged) -> Listing:
        """Return the list of staged changes, with digests. Runs in a thread."""
        if not staged.is_written_to():
            return Listing(None, {}, {})
        began = time.monotonic()
        all_changes = staged.changes()
        finish = time.monotonic()
        self._next = finish + max(_LEAST_SECONDS, _REST_FACTOR * (finish - began))
        digests = self._digests(staged, all_changes)
        changes_by_path: dict[str, Change] = {}
        for change in all_changes[:MOST_FILES]:
            changes_by_path.setdefault(visible(staged.label(change)), change)
        digest = of_keeping(all_changes[:MOST_FILES], digests, ()).sha256
        return Listing(
            staged, changes_by_path, digests, digest, max(0, len(all_changes) - MOST_FILES)
        )

    def _digests(self, staged: Staged, all_changes: Sequence[Change]) -> dict[str, str]:
        """Return the digests of files that can be kept, reading only those that have changed.

        Files beyond ``_MOST_READ`` bytes together get none, so they can't be kept from here.
        """
        digests = dict[str, str]()
        room = _MOST_READ
        for change in all_changes[:MOST_FILES]:
            if change.why_not or change.kind == "deleted" or (change.size or 0) > room:
                continue
            room -= change.size or 0
            state, digest = self._known.get(change.name, (None, ""))
            if not digest or state != change.staged:
                try:
                    digest = changes.finish(keeping.digests(staged, [change]))[change.name]
                except ChangesError:
                    continue  # a cell changes the file while it is read
            digests[change.name] = digest
        self._known = {
            change.name: (change.staged, digests[change.name])
            for change in all_changes
            if change.name in digests
        }
        return digests

    def _take_listing(self, listing: Listing) -> None:
        self._listing = listing
        self._tell()

    # --- requests of front ends ---------------------------------------------------------------

    def diff(self, path: str) -> str:
        """Return the differences of a listed file. Raises ChangesError."""
        listing = self._listing
        change = listing.changes.get(path)
        staged = listing.staged
        if change is None or staged is None:
            raise ChangesError(_not_in_list(path))
        text = visible_lines(staged.diff(change, listing.digests.get(change.name, "")).text)
        more = len(text) - _MOST_DIFF
        return text if more <= 0 else f"{text[:_MOST_DIFF]}\n… {more:,} more characters"

    def keep(self, paths: Sequence[str], digest: str, done: Callable[[str, str], None]) -> None:
        """Keep the listed files with these paths; for no paths, all files that can be kept.

        ``digest`` is that of the list that the user saw. ``done`` gets a problem or a message, and
        "" for the other.
        """
        listing = self._listing
        audit = self._audit
        try:
            staged, chosen_changes = self._approved_changes(paths, digest)
        except ChangesError as error:
            self.look(soon=True)
            done(f"nothing was kept: {error}", "")
            return

        def kept(kept_files: Sequence[Kept]) -> None:
            audit.kept(kept_files, staged.session, BY)
            self.look(soon=True)
            done("", f"kept {count(len(kept_files), 'file')}")

        def failed(problem: str) -> None:
            self.look(soon=True)
            done(problem, "")

        self._keep.run(keeping.steps(staged, chosen_changes, listing.digests), kept, failed)

    def _approved_changes(self, paths: Sequence[str], digest: str) -> tuple[Staged, list[Change]]:
        """Return the changes to keep, after putting the approval on the audit log.

        Raises ChangesError if the list that the user saw does not hold any more, or if the audit
        log can't be written.
        """
        listing = self._listing
        audit = self._audit
        staged = self._views.listable()
        if self._keep.runs:
            raise ChangesError("files are being kept now: wait until that is done")
        chosen_changes = self._chosen_changes(paths)
        # These must still be staged, under the policy in force now. Contents are compared later.
        staged_now = (
            [] if staged is None else staged.changes([change.name for change in chosen_changes])
        )
        if (
            staged is None
            or not digest
            or digest != listing.digest
            or not set(chosen_changes) <= set(staged_now)
        ):
            raise ChangesError("the files changed after they were shown: look again")
        request = of_keeping(chosen_changes, listing.digests, paths)
        decision = Decision(scope="once", asked=True)
        if problem := str(audit.barred() or "") or audit.approved(request, decision):
            raise ChangesError(problem)
        return staged, chosen_changes

    def _chosen_changes(self, paths: Sequence[str]) -> list[Change]:
        """Return the listed changes with these paths, or for no paths all that can be kept.

        Raises ChangesError for a path that is not listed or can't be kept.
        """
        listing = self._listing
        chosen_changes = []
        for path in dict.fromkeys(paths):
            change = listing.changes.get(path)
            if change is None:
                raise ChangesError(_not_in_list(path))
            if note := listing.note(change):
                raise ChangesError(f"{path}: {note}")
            chosen_changes.append(change)
        if not paths:
            chosen_changes = [
                change for change in listing.changes.values() if not listing.note(change)
            ]
        if not chosen_changes:
            raise ChangesError("there is no file that can be kept")
        return chosen_changes

    def drop(self, paths: Sequence[str]) -> str:
        """Drop listed files, all for no paths; return a message. Raises ChangesError, OSError."""
        listing = self._listing
        if listing.staged is None:
            raise ChangesError("nothing is staged")
        for path in paths:
            if path not in listing.changes:
                raise ChangesError(_not_in_list(path))
        dropped = listing.staged.drop([listing.changes[path].name for path in paths])
        self.look(soon=True)
        return f"dropped {count(len(dropped), 'file')}"

    def close(self) -> None:
        """Stop reading and keeping; files that are not copied whole are removed."""
        if self._read is not None:
            self._read.forget()
        self._keep.stop()


def _not_in_list(path: str) -> str:
    return f"{visible(path)} is not in the list: look again"
