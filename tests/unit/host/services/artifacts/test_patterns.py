"""Which files a pattern means, decided on the way down."""

from cellblock.host.services.artifacts import Patterns, absolute_pattern


def means(pattern, path):
    return Patterns.of([pattern]).at(path).match


MEANINGS = [
    ("/s/*.csv", "/s/a.csv", True),
    ("/s/*.csv", "/s/a.CSV", False),
    ("/s/*.csv", "/s/in/a.csv", False),
    ("/s/*.csv", "/t/a.csv", False),
    ("/s/**/*.csv", "/s/a.csv", True),
    ("/s/**/*.csv", "/s/in/its/a.csv", True),
    ("/s/**", "/s/in/a.csv", True),
    ("/s/**/x/**/a", "/s/1/x/2/x/a", True),
    ("/s/**/x/**/a", "/s/1/2/a", False),
    ("/**/a", "/s/t/a", True),
    ("/s/[ab]?", "/s/b1", True),
    ("/s/[ab]?", "/s/c1", False),
    ("/s/*", "/s/.netrc", False),
    ("/s/.*", "/s/.netrc", True),
    ("/s/**/*", "/s/.config/a", False),
    ("/s/a.b", "/s/aXb", False),
    ("/s/\n", "/s/\n", True),
]


def test_a_pattern_means():
    for pattern, path, meant in MEANINGS:
        assert means(pattern, path) is meant, (pattern, path, meant)


def test_nothing_is_looked_for_where_no_pattern_leads():
    patterns = Patterns.of(["/s/plots/*.png", "/t/**/a"])
    assert not patterns.at("/u").left
    assert patterns.at("/s").may_match_below
    assert not patterns.at("/s/plots/deeper").may_match_below
    assert patterns.at("/t/deeper").may_match_below


def test_a_relative_pattern_is_of_the_folder_that_cells_run_in():
    assert absolute_pattern("*.csv", "/project") == "/project/*.csv"
    assert absolute_pattern("/s/*.csv", "/elsewhere") == "/s/*.csv"


def test_many_wildcards_take_no_time():
    assert not means("/" + "**/" * 40 + "x", "/" + "a/" * 60 + "y")
    assert not means("/" + "*a" * 60 + "b", "/" + "a" * 200)
