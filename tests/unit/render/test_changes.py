"""What %changes shows, and what became of it."""

import html

from cellblock.render.cards import CHANGES_JSON
from cellblock.render.tables import CHANGES, ChangeRow, changes, settled_changes

NEW = ChangeRow("/lab/out.csv", "new", 1_229, None, "", "--- /dev/null\n+++ out\n@@ -0,0 +1 @@\n+a")
LINK = ChangeRow("/lab/evil\x1b[2J", "changed", 3, 5, "not kept: it is not a regular file", "")


def test_each_file_is_told_with_its_sizes_and_how_it_is_kept():
    bundle = changes([NEW, LINK], 2, "k-1", 1)
    assert bundle["text/plain"] == (
        "1 file written by cells: yours are as they were until you keep them\n"
        "  new      /lab/out.csv  1.2 KiB\n"
        "  changed  /lab/evil␛[2J  3 bytes ← 5 bytes · not kept: it is not a regular file\n"
        "  Keep them: %changes keep, or some: %changes keep PATH\n"
        "  In a terminal, within a week: cellblock changes keep k-1"
    )
    assert "<summary" in bundle["text/html"]
    assert html.unescape(bundle["text/html"]).count("+a") == 1
    assert "\x1b" not in bundle["text/html"]
    assert bundle[CHANGES_JSON]["changes"][1]["note"] == "not kept: it is not a regular file"


def test_where_nothing_can_be_kept_the_title_says_so_and_nobody_is_told_how():
    git = ChangeRow("/lab/.git", "changed", None, None, "not kept: commit in a terminal", "")
    assert changes([git], 1, "k-1", 0)["text/plain"] == (
        "Cells wrote no file that can be kept: yours are as they were\n"
        "  changed  /lab/.git  not kept: commit in a terminal"
    )


def test_of_more_files_than_are_listed_the_number_is_told():
    rows = [NEW] * CHANGES
    assert "  and 1,100 more" in changes(rows, CHANGES + 1_100, "")["text/plain"]
    assert "Keep them" not in changes(rows, CHANGES, "")["text/plain"]
    assert "  and 5 more" in settled_changes([NEW] * (CHANGES + 5), kept=True)["text/plain"]


def test_what_was_kept_or_dropped_is_told():
    assert settled_changes([NEW], kept=True)["text/plain"] == (
        "Kept 1 file: the project has what the cells wrote\n  new      /lab/out.csv  1.2 KiB"
    )
    dropped = settled_changes([NEW, LINK], kept=False)["text/plain"]
    assert dropped.startswith("Dropped 2 files: cells see them until this kernel ends\n")


def test_where_nothing_was_changed_that_is_told():
    assert changes([], 0, "k-1")["text/plain"] == "No file of the project was changed."
