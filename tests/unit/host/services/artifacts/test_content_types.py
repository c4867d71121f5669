"""A file's type is told by what is in it; its name counts for text alone."""

from cellblock.host.services.artifacts import content_type

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
ZIP = b"PK\x03\x04\x14\0\x06\0"
SHEET = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
KINDS = [
    (PNG, "plot.png", "image/png"),
    (PNG, "plot.csv", "image/png"),
    (b"\xff\xd8\xff\xe0\0\x10JFIF", "a", "image/jpeg"),
    (b"RIFF\x10\0\0\0WEBPVP8 ", "a", "image/webp"),
    (b"%PDF-1.7\n", "a.txt", "application/pdf"),
    (b"PAR1\x15\x04\x15\0", "t.parquet", "application/vnd.apache.parquet"),
    (ZIP, "t.xlsx", SHEET),
    (ZIP, "t.html", "application/zip"),
    (b"a,b\n1,2\n", "t.csv", "text/csv"),
    (b"BM,a\n1,2\n", "t.csv", "text/csv"),
    (b"OggSomething of text\n", "notes.txt", "text/plain"),
    (b'{"a": 1}', "t.json", "application/json"),
    (b"", "empty.csv", "text/csv"),
    ("é".encode()[:1], "cut.txt", "text/plain"),
    (b"\xff\xfe\0a", "t.txt", "application/octet-stream"),
    (b"<html><script>", "t.png", "text/html"),
    (b"\xef\xbb\xbf \n<!DOCTYPE HTML>", "t.csv", "text/html"),
    (b"<?xml version='1.0'?><svg onload=''>", "t.png", "image/svg+xml"),
    (b"<?xml version='1.0'?><html>", "t", "application/xhtml+xml"),
    (b"text with a NUL \0", "t.txt", "application/octet-stream"),
    (b"# A\n", "t.md", "text/markdown"),
    (b"x", "t", "text/plain"),
]


def test_the_type_of():
    for head, name, kind in KINDS:
        assert content_type(head, name) == kind, (head, name, kind)
