"""The card for files that a cell left: every name on it was chosen by the cell."""

from cellblock.render.cards import ARTIFACTS_JSON
from cellblock.render.tables import File, Left, artifacts


def file(name, *, linked=True, size=12_600, kind="image/png"):
    path = f"artifacts/{name}" if linked else f"/srv/artifacts/{name}"
    return File(name, path, size, kind, linked)


def test_a_card_names_what_was_copied_and_what_was_not():
    card = artifacts([file("plot.png"), file("t.csv", size=90, kind="text/csv")],
                     [Left("huge", "it is larger than 10 bytes (artifact_max_bytes)")])  # fmt: skip
    assert card["text/plain"] == (
        "2 files copied out\n"
        "  artifacts/plot.png  12.3 KiB  image/png\n"
        "  artifacts/t.csv     90 bytes  text/csv\n"
        "  Not copied: huge: it is larger than 10 bytes (artifact_max_bytes)"
    )
    assert card[ARTIFACTS_JSON] == {
        "version": 1,
        "title": "2 files copied out",
        "artifacts": [
            {"name": "plot.png", "path": "artifacts/plot.png", "size_bytes": 12_600,
             "content_type": "image/png"},
            {"name": "t.csv", "path": "artifacts/t.csv", "size_bytes": 90,
             "content_type": "text/csv"},
        ],
        "not_copied": [{"name": "huge", "why": "it is larger than 10 bytes (artifact_max_bytes)"}],
        "uncounted": False,
    }  # fmt: skip


def test_files_beneath_the_notebook_are_links_and_others_are_paths():
    link = '<a href="./artifacts/plot.png">artifacts/plot.png</a>'
    assert link in artifacts([file("plot.png")], [])["text/html"]
    assert "<a " not in artifacts([file("plot.png", linked=False)], [])["text/html"]


def test_a_name_is_neither_markup_nor_an_address_nor_unseen():
    name = "<img src=x onerror=alert(1)>&\"'\u202e\nx.png"
    card = artifacts([file(name), file("javascript:alert(1)")], [Left(name, "it is a link")])
    assert "<img" not in card["text/html"]
    assert 'href="./artifacts/javascript%3Aalert%281%29"' in card["text/html"]
    assert card["text/plain"].count("⟨U+202E⟩␊x.png") == 2
    assert len(card["text/plain"].splitlines()) == 4


def test_a_thousand_files_are_a_short_card():
    card = artifacts([file(f"{n}.png") for n in range(1000)], [Left("a", "b")] * 80, uncounted=True)
    assert "  and 950 more" in card["text/plain"]
    assert "  Not copied: 30 more" in card["text/plain"]
    assert "There are more files than cellblock looks at" in card["text/plain"]
    assert len(card["text/plain"].splitlines()) < 110
