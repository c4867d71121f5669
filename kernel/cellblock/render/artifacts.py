"""The card for files that a cell left: links to the copies, and what was not copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from cellblock.render import markup as m
from cellblock.render.bundle import ARTIFACTS_JSON, JSON_VERSION, Bundle, count
from cellblock.render.text import clip, encodable, visible, width
from cellblock.render.values import size

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAME_COLUMNS: Final = 60
_SHOWN: Final = 50


class File(NamedTuple):
    """A file that was copied: where it is, relative to the notebook if it lies beneath it."""

    name: str
    path: str
    size_bytes: int
    content_type: str
    #: Whether ``path`` is relative, so that a front end can follow it.
    linked: bool


class Left(NamedTuple):
    """A file that was not copied, and why."""

    name: str
    why: str


def artifacts(files: Sequence[File], left: Sequence[Left], *, uncounted: bool = False) -> Bundle:
    """Return the card. ``uncounted`` says that there are more files than are looked at."""
    title = f"{count(len(files), 'file')} copied out" if files else "No file was copied out"
    notes = [*(f"Not copied: {visible(one.name)}: {one.why}" for one in left[:_SHOWN])]
    if len(left) > _SHOWN:
        notes.append(f"Not copied: {len(left) - _SHOWN:,} more")
    if uncounted:
        notes.append("There are more files than are looked at: write fewer, or name them closer.")
    return {
        "text/plain": "\n".join([title, *_plain(files), *(f"  {note}" for note in notes)]),
        "text/html": _html(title, files, notes),
        ARTIFACTS_JSON: {
            "version": JSON_VERSION,
            "artifacts": [
                {
                    "name": encodable(one.name),
                    "path": encodable(one.path),
                    "size_bytes": one.size_bytes,
                    "content_type": one.content_type,
                }
                for one in files
            ],
            "not_copied": [{"name": encodable(one.name), "why": one.why} for one in left],
            "uncounted": uncounted,
        },
    }


def _plain(files: Sequence[File]) -> list[str]:
    paths = [clip(visible(one.path), _NAME_COLUMNS) for one in files[:_SHOWN]]
    column = max(map(width, paths), default=0)
    lines = [
        f"  {path}{' ' * (column - width(path))}  {size(one.size_bytes)}  {one.content_type}"
        for path, one in zip(paths, files, strict=False)
    ]
    return [*lines, f"  and {len(files) - _SHOWN:,} more"] if len(files) > _SHOWN else lines


def _html(title: str, files: Sequence[File], notes: Sequence[str]) -> m.Html:
    rows = [_row(one) for one in files[:_SHOWN]]
    if len(files) > _SHOWN:
        rows.append(m.paragraph(f"and {len(files) - _SHOWN:,} more", color=m.MUTED, tight=True))
    rows += [m.paragraph(note, color=m.MUTED) for note in notes]
    color = m.AMBER if notes else m.GREEN
    return m.card(title, *rows, symbol="↧", color=color, label=title)


def _row(file: File) -> m.Html:
    name = clip(visible(file.path), _NAME_COLUMNS)
    # "./": whatever it is called, it is no address of another scheme.
    shown = m.element("a", name, href=f"./{quote(file.path)}") if file.linked else m.code(name)
    told = m.element(
        "span",
        f" · {size(file.size_bytes)} · {file.content_type}",
        style=f"color:{m.MUTED}",
    )
    return m.paragraph(shown, told, tight=True)
