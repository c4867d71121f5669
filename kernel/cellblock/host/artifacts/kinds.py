"""What a file is, by its first bytes; of text, which is told by nothing else, by its name too."""

from __future__ import annotations

import codecs
import os
from typing import Final

#: Bytes that are looked at.
LOOKED_AT: Final = 4_096
UNKNOWN: Final = "application/octet-stream"
#: Offset, bytes that stand there, and what that is.
_MAGIC: Final[tuple[tuple[int, bytes, str], ...]] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"BM", "image/bmp"),
    (0, b"II*\x00", "image/tiff"),
    (0, b"MM\x00*", "image/tiff"),
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"\xfd7zXZ\x00", "application/x-xz"),
    (0, b"(\xb5/\xfd", "application/zstd"),
    (0, b"7z\xbc\xaf'\x1c", "application/x-7z-compressed"),
    (257, b"ustar", "application/x-tar"),
    (0, b"PAR1", "application/vnd.apache.parquet"),
    (0, b"ARROW1", "application/vnd.apache.arrow.file"),
    (0, b"\x89HDF\r\n\x1a\n", "application/x-hdf5"),
    (0, b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (0, b"\x93NUMPY", "application/x-npy"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"OggS", "audio/ogg"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
)
_PDF: Final = b"%PDF-"
_ZIP: Final = b"PK\x03\x04"
#: What is a zip file inside, by the name's end.
_ZIPPED: Final = {
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".npz": "application/x-npz",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
#: How text begins that a front end would act on, in lower case.
_ACTIVE: Final[tuple[tuple[bytes, str], ...]] = (
    (b"<!doctype html", "text/html"),
    (b"<html", "text/html"),
    (b"<head", "text/html"),
    (b"<body", "text/html"),
    (b"<script", "text/html"),
    (b"<!doctype svg", "image/svg+xml"),
    (b"<svg", "image/svg+xml"),
)
_TEXTS: Final = {
    ".csv": "text/csv",
    ".geojson": "application/geo+json",
    ".htm": "text/html",
    ".html": "text/html",
    ".ipynb": "application/x-ipynb+json",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".md": "text/markdown",
    ".svg": "image/svg+xml",
    ".toml": "application/toml",
    ".tsv": "text/tab-separated-values",
    ".xhtml": "application/xhtml+xml",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


def content_type(head: bytes, name: str) -> str:
    """Return the type of a file that begins with ``head``, its first ``LOOKED_AT`` bytes."""
    extension = os.path.splitext(name)[1].lower()  # noqa: PTH122 - a name, no path
    if head.startswith(_PDF):
        return "application/pdf"
    if _is_text(head):
        return _text(head, extension)
    if head.startswith(_ZIP):
        return _ZIPPED.get(extension, "application/zip")
    return next((kind for at, magic, kind in _MAGIC if head.startswith(magic, at)), UNKNOWN)


def _is_text(head: bytes) -> bool:
    """Say whether it is UTF-8; the last letter may be cut."""
    if b"\0" in head:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _text(head: bytes, extension: str) -> str:
    start = head.removeprefix(codecs.BOM_UTF8).lstrip().lower()
    for begins, kind in _ACTIVE:
        if start.startswith(begins):
            return kind
    if start.startswith(b"<?xml"):
        inner = "image/svg+xml" if b"<svg" in start else "application/xml"
        return "application/xhtml+xml" if b"<html" in start else inner
    return _TEXTS.get(extension, "text/plain")
