"""A file's type is told by its name."""

from cellblock.host.services.artifacts import content_type

KINDS = {
    "plot.PNG": "image/png",
    "t.csv": "text/csv",
    "t.csv.gz": "application/gzip",
    "t.parquet": "application/vnd.apache.parquet",
    "report.md": "text/markdown",
    "a": "application/octet-stream",
}


def test_the_type_of():
    assert {name: content_type(name) for name in KINDS} == KINDS
