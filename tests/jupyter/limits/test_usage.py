"""What each cell took: in its reply's metadata, and under ``%usage``."""

from support import reading


def took(kernel, code, **fields):
    mid = kernel.execute_send(code, **fields)
    reply = kernel.reply(mid)
    kernel.until_idle(mid)
    return reply["metadata"]["cellblock"]["usage"]


def test_the_reply_says_what_the_cell_took(either):
    usage = took(either, "x = 1")
    assert {name: type(value) for name, value in usage.items()} == {
        "wall_seconds": float,
        "cpu_seconds": float,
        "peak_memory_bytes": int,
        "output_bytes": int,
        "read_bytes": int,
    }
    assert 0 < usage["cpu_seconds"] < 1
    assert usage["output_bytes"] == 0


def test_time_and_processor_time_are_told_apart(either):
    slept = took(either, "import asyncio\nawait asyncio.sleep(0.3)")
    assert slept["wall_seconds"] >= 0.3
    assert slept["cpu_seconds"] < 0.2
    worked = took(either, "from time import thread_time as t\nend = t() + 0.3\nwhile t() < end: 0")
    assert worked["cpu_seconds"] >= 0.29


def test_memory_is_that_of_the_cell_that_had_it(either):
    before = took(either, "x = 1")["peak_memory_bytes"]
    held = took(either, "large = b'x' * 200_000_000\ndel large")["peak_memory_bytes"]
    after = took(either, "x = 1")["peak_memory_bytes"]
    assert held - before > 150_000_000
    assert after - before < 50_000_000


def test_output_counts_as_it_came_though_less_is_shown(either):
    assert took(either, "print('x' * 999)")["output_bytes"] == 1_000
    assert took(either, "print('ä' * 500)")["output_bytes"] == 1_001
    assert took(either, "'x' * 10")["output_bytes"] == 12
    flood = took(either, "for _ in range(3): print('x' * 1_000_000)")
    assert flood["output_bytes"] == 3_000_003


def test_a_cell_that_fails_took_something_and_one_that_is_refused_nothing(safe):
    assert took(safe, "1 / 0")["cpu_seconds"] > 0
    mid = safe.execute_send("import gc")
    assert safe.reply(mid)["metadata"] == {}
    safe.until_idle(mid)


def test_the_table_lists_the_cells(start):
    kernel = start("safe")
    kernel.run("short = 1")
    kernel.run("import asyncio\nawait asyncio.sleep(0.3)")
    kernel.run("unlisted = 1", silent=True, store_history=False)
    reply, published = kernel.run("%usage")
    assert reply["status"] == "ok"
    (table,) = reading.cards(published, "usage")
    assert [cell["line"] for cell in table["cells"]] == ["short = 1", "import asyncio"]
    assert table["totals"]["cells"] == 2
    text = reading.card_text(published)
    assert "\n     2 " in text
    assert "import asyncio" in text
    (only,) = reading.cards(kernel.run("%usage 1")[1], "usage")
    assert [cell["number"] for cell in only["cells"]] == [1]
    (top,) = reading.cards(kernel.run("%usage top")[1], "usage")
    assert top["cells"][0]["number"] == 2
    assert "No such cell" in reading.card_text(kernel.run("%usage 99")[1])


def test_tables_without_number_are_left_out(unsafe):
    code = "for _ in range(1_000): get_ipython().run_line_magic('usage', '')"
    reply, published = unsafe.run(code)
    assert reply["status"] == "ok"
    assert len(reading.of(published, "display_data")) < 300
    assert "display_max_bytes" in reading.notices(published)
