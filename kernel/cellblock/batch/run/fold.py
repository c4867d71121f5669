"""What a run left that was killed becomes files and records, before anything else is written."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from cellblock.batch.run.journal import left_in

if TYPE_CHECKING:
    from cellblock.batch.run.folder import OutputFolder
    from cellblock.batch.run.ledger import Ledger


def fold(folder: OutputFolder, ledger: Ledger) -> int:
    """Return how many notebooks' files were made of journals; none of those is left."""
    made = 0
    for name, left in left_in(folder):
        with contextlib.suppress(OSError):  # the journal stays, for the next run
            if left is not None:
                folder.write(left.output, left.document.written())
                made += 1
                if left.record is not None:
                    ledger.enter(left.output, left.key, left.record)
            folder.remove(name)
    return made
