"""Names that cells chose can hide, reorder and lead away nothing."""

from itertools import islice

import pytest

from cellblock.host.services.artifacts import MAX_NAME, free_names, safe_path


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("plots/a b.png", "plots/a b.png"),
        ("Grüße.csv", "Grüße.csv"),
        ("<img src=x onerror=alert(1)>.png", "_img src=x onerror=alert(1)_.png"),
        ("a\nb\u2028c\x1b[31m.csv", "a b c_[31m.csv"),
        ("invoice\u202efdp.exe", "invoice_fdp.exe"),
        ("../../etc/passwd", "_./_./etc/passwd"),
        (".bashrc", "_bashrc"),
        ("-rf", "_rf"),
        ("javascript:alert(1)", "javascript_alert(1)"),
        ("%2e%2e", "_2e_2e"),
        ("\udcff.csv", "_.csv"),
        (" ", "_"),
        ("//", "_"),
        ("e\u0301.csv", "é.csv"),
    ],
)
def test_a_name_is_made_harmless(path, name):
    assert safe_path(path) == name


def test_a_long_name_keeps_its_extension_and_whole_letters():
    name = safe_path("é" * 300 + ".parquet")
    assert len(name.encode()) <= MAX_NAME
    assert name.endswith("é.parquet")


@pytest.mark.parametrize(
    ("name", "second"),
    [("a.png", "a-2.png"), ("a", "a-2"), ("a.tar.gz", "a.tar-2.gz")],
)
def test_a_name_that_is_taken_gets_a_number(name, second):
    assert [*islice(free_names(name), 2)] == [name, second]
