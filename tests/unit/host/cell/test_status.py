"""What the host shows of a session."""

import threading

from cellblock.host.cell import status


def test_a_listing_of_what_is_staged_waits_for_no_locked_folder(monkeypatch):
    monkeypatch.setattr(status, "_MOST_LISTING", 0.01)
    gate, views = threading.Event(), status.Views()
    monkeypatch.setattr(views, "listable", lambda: [gate.wait(), None][1])
    for _ in range(2):  # the second cell begins no other thread
        asked = status.Asked("", None, object())
        assert "cells keep its folders busy" in str(views.changes_table(asked))
    assert views._reading.is_under_way
    gate.set()
