"""A chart's library is in one output of a notebook: which one, and what a guest can say of it."""

import pytest

pytest.importorskip("plotly", reason="extra 'interactive' is not installed")

from cellblock.host.output.frames import SharedLibraries, framed

FIGURE = framed("<!-- library: plotly -->\n<div></div><script>Plotly.newPlot()</script>")
MUCH = 1_000_000


@pytest.fixture
def libraries():
    made = SharedLibraries()
    made.begin("a")
    return made


def has_it(libraries, **where):
    return len(libraries.complete(FIGURE, **where)) > MUCH


def test_the_first_output_has_the_library_and_the_others_do_not(libraries):
    assert [has_it(libraries), has_it(libraries)] == [True, False]
    libraries.begin("b")
    assert not has_it(libraries)


def test_it_is_there_anew_when_its_cell_runs_again_is_deleted_or_clears_what_it_showed(libraries):
    assert has_it(libraries)
    libraries.begin("a")
    assert has_it(libraries)
    libraries.begin("b", deleted=("a",))
    assert has_it(libraries)
    libraries.forget()
    assert has_it(libraries)


def test_what_is_shown_elsewhere_brings_its_own_and_lends_it_to_nobody(libraries):
    assert [has_it(libraries, here=False), has_it(libraries)] == [True, True]
    alone = SharedLibraries()
    alone.begin("")
    assert [has_it(alone), has_it(alone)] == [True, True]


def test_a_guest_gets_no_other_file_by_a_name(libraries):
    for name in ("os", "../secret", "plotly/../x", "PLOTLY"):
        page = framed(f"<!-- library: {name} -->\n<script>1</script>")
        assert "data-cellblock-library" not in page
        assert libraries.complete(page) == page
