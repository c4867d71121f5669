"""Pictures of cells as language models take them: bounded, and made smaller by nobody but a guest."""

import base64
import io
import time

import pytest
from PIL import Image as Pillow

from cellblock import Image, Sandbox
from cellblock.api.images import MAX_IMAGE

pytestmark = pytest.mark.usefixtures("home")

#: Noise, which no format makes much smaller.
NOISE = """
import io, os
from IPython.display import Image, display
from PIL import Image as Pillow

def picture(width, height, kind="png", mode="RGB"):
    pixels = os.urandom(width * height * len(mode))
    file = io.BytesIO()
    Pillow.frombytes(mode, (width, height), pixels).save(file, kind)
    return Image(file.getvalue(), format=kind)
"""


@pytest.fixture(scope="module")
def data(home):
    """A sandbox whose cells can draw noise."""
    assert home
    with Sandbox("data") as one:
        assert one.execute(NOISE).success
        yield one


def opened(image):
    return Pillow.open(io.BytesIO(image.content))


@pytest.mark.quick
def test_a_small_picture_is_as_the_cell_showed_it(data):
    result = data.execute("display(picture(20, 10))\npicture(30, 10, 'jpeg')")
    first, second = data.images(result)
    assert first == Image("".join(result.displays[0].data["image/png"].split()), "image/png")
    assert (second.mime_type, opened(second).size) == ("image/jpeg", (30, 10))


def test_a_large_picture_is_made_smaller_in_the_shape_that_it_had(data):
    cell = "display(picture(900, 600))\ndisplay(picture(1800, 1200, 'jpeg'))\n"
    result = data.execute(f"{cell}display(picture(700, 700, mode='RGBA'))")
    assert all(len(next(iter(one.data.values()))) > MAX_IMAGE for one in result.displays)
    images = data.images(result)
    assert [one.mime_type for one in images] == ["image/png", "image/jpeg", "image/png"]
    assert all(MAX_IMAGE // 4 < len(one.data) <= MAX_IMAGE for one in images)
    ratios = [opened(one).width / opened(one).height for one in images]
    assert ratios == pytest.approx([1.5, 1.5, 1.0], abs=0.01)


def test_a_model_gets_four_pictures_and_no_text_that_calls_itself_one(data):
    cell = "for n in range(6): display(picture(10 + n, 10))\n"
    text = "display({'image/png': 'bm8g'}, raw=True)\n"
    result = data.execute(f"{text}{cell}")
    assert [opened(one).width for one in data.images(result)] == [10, 11, 12, 13]
    result = data.execute("display({'image/png': 'iVBORw0KGgoA' * 99_999}, raw=True)")
    assert len(result.displays[0].data["image/png"]) > MAX_IMAGE
    assert data.images(result) == ()


@pytest.mark.parametrize("made", [b"\x89PNG\r\n\x1a\n" + b"\0" * MAX_IMAGE, b"<svg/>", b""])
def test_what_a_guest_says_is_a_smaller_version_is_looked_at(home, made):
    """A cell may replace what makes it."""
    assert home
    lie = "import sys, base64\nguest = sys.modules['cellblock.guest.server']\n"
    lie += f"guest.smaller = lambda *_: base64.b64decode({base64.b64encode(made).decode()!r})\n"
    with Sandbox("data") as one:
        result = one.execute(f"{NOISE}shown = picture(900, 600)\n{lie}shown")
        assert len(result.rich_result.data["image/png"]) > MAX_IMAGE
        assert one.images(result) == ()
        assert one.execute("1 + 1").value == 2


def test_a_guest_that_does_not_answer_has_one_deadline_for_all_pictures(home, monkeypatch):
    """Each would take ten seconds."""
    assert home
    monkeypatch.setattr("cellblock.api.sandbox.QUERY_TIMEOUT", 0.5)
    hangs = "import sys, time\nsys.modules['cellblock.guest.server'].smaller = "
    hangs += "lambda *_: time.sleep(600)\nfor n in range(3): display(picture(900 + n, 600))"
    with Sandbox("data") as one:
        result = one.execute(f"{NOISE}{hangs}")
        assert [len(each.data["image/png"]) > MAX_IMAGE for each in result.displays] == [True] * 3
        began = time.monotonic()
        assert one.images(result) == ()
        assert time.monotonic() - began < 10
        assert one.execute("1 + 1").value == 2


def test_what_listing_variables_took_is_not_left_for_pictures(data, monkeypatch):
    given = list[float]()

    async def smaller(_self, picture, seconds):
        given.append(seconds)
        return picture

    monkeypatch.setattr("cellblock.api.sandbox.AsyncSandbox._smaller", smaller)
    result = data.execute("picture(900, 600)")
    data.images(result)
    data.variables()
    data.images(result)
    data.execute("1")
    data.images(result)
    assert given[0] == given[2] == 10.0 > given[1]


def test_of_a_chart_that_a_browser_draws_a_model_gets_a_picture_too(home):
    for library in ("altair", "vl_convert"):
        pytest.importorskip(library, reason="extra 'interactive' is not installed")
    assert home
    chart = "import altair\nchart = altair.Chart(altair.Data(values=[{'a': 1}]))\n"
    chart += "chart.mark_bar().encode(x='a:Q')"
    with Sandbox("data") as one:
        result = one.execute(chart)
        assert result.rich_result.data["text/html"].startswith('<iframe class="cellblock-frame"')
        (picture,) = one.images(result)
        assert opened(picture).format == "PNG"
        assert result.to_string().endswith("<image/png> alt.Chart(...)")
        # A notebook shows the page, as a kernel does.
        assert list(one.execute(chart, cell="cell 1").rich_result.data) == [
            "text/plain",
            "text/html",
        ]
        (fork,) = one.fork()  # without the threads that draw
        assert "you can't see it" in fork.execute(chart).to_string()


def test_no_chart_is_drawn_where_what_draws_it_would_end_the_interpreter(home, tmp_path):
    for library in ("altair", "vl_convert"):
        pytest.importorskip(library, reason="extra 'interactive' is not installed")
    assert home
    policy = tmp_path / "small.toml"
    policy.write_text('extends = "data"\nmemory_max_bytes = 1_500_000_000\n')
    with Sandbox(policy) as one:
        said = one.execute(
            "import altair\naltair.Chart(altair.Data(values=[{'a': 1}])).mark_bar().encode(x='a:Q')"
        ).to_string()
        assert "an interactive figure of altair" in said or "an interactive page" in said
