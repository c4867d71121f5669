"""The table of ``%usage``: who took most, in every form."""

from cellblock.render.tables import MOST_ROWS, UsageRow, UsageTotals, usage

MIB = 1 << 20
ROWS = [
    UsageRow(1, "import numpy as np", 0.12, 0.1, 40 * MIB, 0, 8192),
    UsageRow(2, "fit(model, 'a name that does not end')", 83.2, 75.5, 300 * MIB, 1_500, 0),
    UsageRow(4, "x = 1", 0.0006, 0.0004, 41 * MIB, 0, 0),
]
TOTALS = UsageTotals(3, 83.3206, 75.6004, 1_500, 8192)


def test_the_table_in_a_terminal():
    assert usage(ROWS, TOTALS)["text/plain"].splitlines() == [
        "Usage: 3 cells, 83.3 s wall, 75.6 s cpu",
        "  cell      wall       cpu      peak       out      read",
        "     1    120 ms    100 ms    40 MiB       0 B     8 KiB import numpy as np",
        "     2    83.2 s    75.5 s   300 MiB   1.5 KiB       0 B fit(model, 'a name tha…",
        "     4    0.6 ms    0.4 ms    41 MiB       0 B       0 B x = 1",
    ]


def test_top_is_the_longest_first_a_number_is_one_cell_and_what_is_none_is_said():
    def numbers(argument):
        cells = usage(ROWS, TOTALS, argument)["application/vnd.cellblock.usage+json"]["cells"]
        return [cell["number"] for cell in cells]

    assert numbers("top") == [2, 1, 4]
    assert numbers("4") == [4]

    assert usage([], TOTALS)["text/plain"] == "No cell has ended yet."
    for argument in ("3", "-1", "huh", "2 3", "²"):
        said = usage(ROWS, TOTALS, argument)["text/plain"]
        assert (
            said
            == "No such cell. %usage shows all cells, %usage top those that took most, %usage 7 one."
        )


def test_the_data_is_whole_of_the_last_cells():
    data = usage(ROWS[:1], TOTALS)["application/vnd.cellblock.usage+json"]
    assert data["totals"]["cells"] == 3
    assert data["cells"] == [
        {
            "number": 1,
            "line": "import numpy as np",
            "wall_seconds": 0.12,
            "cpu_seconds": 0.1,
            "peak_memory_bytes": 40 * MIB,
            "output_bytes": 0,
            "read_bytes": 8192,
        }
    ]

    many = [ROWS[2]._replace(number=number) for number in range(1, 201)]
    data = usage(many, TOTALS)["application/vnd.cellblock.usage+json"]
    assert [cell["number"] for cell in data["cells"]] == list(range(201 - MOST_ROWS, 201))


def test_a_line_of_source_is_text_and_no_markup():
    hostile = [ROWS[0]._replace(line="<img src=x onerror=alert(1)>\x1b[31m\u202e\ud800")]
    shown = usage(hostile, TOTALS)
    assert "<img" not in shown["text/html"]
    assert "\x1b" not in shown["text/plain"]
    shown["text/html"].encode()
    shown["text/plain"].encode()
    str(shown["application/vnd.cellblock.usage+json"]).encode()
