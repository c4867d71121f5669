"""What %changes shows, and what became of it."""

import html

from cellblock.render.cards import CHANGES_JSON
from cellblock.render.tables import CHANGES, ChangeRow, changes, settled_changes
from cellblock.render.text import COLUMNS, width

NEW = ChangeRow("/lab/out.csv", "new", 1_229, None, "", "--- /dev/null\n+++ out\n@@ -0,0 +1 @@\n+a")
LINK = ChangeRow("/lab/evil\x1b[2J", "changed", 3, 5, "not kept: it is not a regular file", "")


def test_each_file_is_told_with_its_sizes_and_how_it_is_kept():
    bundle = changes([NEW, LINK], 2, "k-1", 1)
    assert bundle["text/plain"] == (
        "1 file written by cells: your project is unchanged until you keep them\n"
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
    many = changes(rows, CHANGES + 1_100, "k-1")["text/plain"]
    assert "  and 1,100 more: see cellblock changes diff k-1\n" in many
    assert "Keep them" not in changes(rows, CHANGES, "k-1", asked=True)["text/plain"]
    assert "  and 5 more" in settled_changes([NEW] * (CHANGES + 5), kept=True)["text/plain"]


def test_what_is_not_shown_of_a_file_that_is_asked_about_is_said_in_its_row():
    see = "see cellblock changes diff k-1"
    rows = [
        ChangeRow("cut", "new", 9, None, "", "+a", cut=331),
        ChangeRow("large", "new", 9, None, "", "+b\n" * 10_000),
        ChangeRow("slow", "changed", 9, 8, "", ""),
        ChangeRow("small", "changed", 9, 8, "", "-c\n+d"),
    ]
    bundle = changes(rows, 4, "k-1", asked=True)
    assert bundle["text/plain"].split("\n")[1:] == [
        f"  new      cut  9 bytes · 331 lines not shown whole: {see}",
        "    │ +a",
        f"  new      large  9 bytes · its lines are not shown: {see}",
        f"  changed  slow  9 bytes ← 8 bytes · its lines are not shown: {see}",
        "  changed  small  9 bytes ← 8 bytes",
        "    │ -c",
        "    │ +d",
    ]
    page = html.unescape(bundle["text/html"])
    assert page.count("331 lines not shown whole: see <code") == 1
    assert page.count("its lines are not shown: see <code") == 2
    assert "+b" not in page
    assert "+d" in page


def test_no_line_of_a_file_begins_at_a_terminals_edge():
    row = ChangeRow("out", "new", 9, None, "", f"+{'x ' * 200}\x1b[2J\r  deleted  mine")
    shown = changes([row], 1, "k-1", asked=True)["text/plain"].split("\n")[2:]
    assert len(shown) > 2
    assert all(line.startswith(("    │ ", "    ┆ ")) for line in shown)
    assert max(map(width, shown)) <= COLUMNS
    assert "\x1b" not in "".join(shown)


def test_what_was_kept_or_dropped_is_told():
    assert settled_changes([NEW], kept=True)["text/plain"] == (
        "Kept 1 file: the project has what the cells wrote\n  new      /lab/out.csv  1.2 KiB"
    )
    dropped = settled_changes([NEW, LINK], kept=False)["text/plain"]
    assert dropped.startswith("Dropped 2 files: cells see them until this kernel ends\n")


def test_where_nothing_was_changed_that_is_told():
    assert changes([], 0, "k-1")["text/plain"] == "No file of the project was changed."
