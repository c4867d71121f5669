"""A result as a language model reads it: short, in order, with what has to be corrected."""

from cellblock import CellError, Denial, Display, Result, Stop
from cellblock.api.results import Artifact, Skipped

#: As IPython has it: a cell's frames, a library's between them, what it says in the end.
LINES = (
    "\x1b[31m---------------------------\x1b[39m",
    "\x1b[31mValueError\x1b[39m                  Traceback (most recent call last)",
    (
        "\x1b[36mCell\x1b[39m\x1b[36m \x1b[39m\x1b[32mIn[3]\x1b[39m\x1b[32m, line 5\x1b[39m\n"
        "      4 x = 1\n\x1b[32m----> \x1b[39m\x1b[32m5\x1b[39m load(x)\n      6 y = 2"
    ),
    "Cell In[1], line 2, in load(x)\n      1 def load(x):\n----> 2     return json.loads(x)",
    "File /usr/lib/python3.11/json/__init__.py:339, in loads(s)\n    338 else:\n--> 339     raise E",
    "ValueError: no text\nAsk the operator for more.",
)


def error(message="no text", lines=LINES):
    return CellError("ValueError", message, "\n".join(lines), lines)


def denial(line=1):
    return Denial(
        "import-not-allowed", line, 7, 9, "import os", "os", "reads files", "Take an input."
    )


def test_an_error_has_the_cells_lines_and_what_is_said_beyond_it():
    assert Result(status="error", error=error()).to_string() == (
        "The cell failed: ValueError: no text\n\n"
        "  line 5: load(x)\n"
        "  line 2, in load(x): return json.loads(x)\n"
        "Ask the operator for more."
    )


def test_an_error_without_a_frame_of_the_cells_is_shown_as_it_is():
    bare = error(lines=("Traceback (most recent call last):", "ValueError: no text"))
    assert "Traceback (most recent call last):" in Result(status="error", error=bare).to_string()


def test_recursion_does_not_fill_the_page():
    frame = "Cell In[1], line 2, in f(x)\n----> 2     return f(x)"
    deep = error(lines=(*LINES[:3], *[frame] * 500, LINES[-1]))
    said = Result(status="error", error=deep).to_string()
    assert said.count("return f(x)") == 7
    assert "  line 5: load(x)\n  …\n  line 2" in said


def test_denials_are_said_whole_and_many_are_counted():
    said = Result(
        status="denied", denials=tuple(map(denial, range(1, 31))), policy="safe"
    ).to_string()
    assert said.startswith(
        "The cell was not run: 30 findings (policy safe).\n\n"
        "line 1: import-not-allowed: os reads files\n    import os\n  Instead: Take an input."
    )
    assert said.endswith("line 12: import-not-allowed: os reads files\n    import os\n"
                         "  Instead: Take an input.\n\nAnd 18 more findings.")  # fmt: skip


def test_a_denial_has_the_difference_and_the_operation_that_does_the_same():
    one = Denial(
        "cell-not-approved", 1, 0, 1, "x = 2", "", "this text is not approved", "Ask for it.",
        detail="-x = 1\n+x = 2", rewrite="text = ops.read_file('a')\nprint(text)",
    )  # fmt: skip
    assert Result(status="denied", denials=(one,), policy="mine").to_string() == (
        "The cell was not run: 1 finding (policy mine).\n\n"
        "line 1: cell-not-approved: this text is not approved\n"
        "    x = 2\n"
        "    -x = 1\n"
        "    +x = 2\n"
        "  Instead: Ask for it.\n"
        "    text = ops.read_file('a')\n"
        "    print(text)"
    )


def test_all_that_came_of_a_cell_has_its_place():
    said = Result(
        status="ok",
        output="out\n",
        error_output="err\n",
        result="42",
        displays=(Display({"text/plain": "<Figure>", "image/png": "…"}), Display({"text/plain": "x"})),
        artifacts=(Artifact("a.csv", "/out/a.csv", 2048, "text/csv"),),
        skipped=(Skipped("b", "it is a link"),),
        left_out={"stdout": 12_345},
    ).to_string()  # fmt: skip
    assert said == (
        "The cell ran.\n\nstdout:\nout\n\nstderr:\nerr\n\nresult:\n42\n\n"
        "Displayed: <image/png> <Figure>; x\n\n"
        "Left out: 12,345 bytes of stdout (stdout_max_bytes).\n\n"
        "Files copied out: a.csv (text/csv, 2 KiB).\n\n"
        "Not copied: b: it is a link."
    )


def test_what_is_long_keeps_its_beginning_and_its_end():
    said = Result(status="ok", output="a" * 5_000 + "z" * 5_000).to_string(1_000)
    assert len(said) < 1_000
    assert "aaa\n… 9,501 characters left out …\nzzz" in said


def test_a_stop_says_the_limit_and_what_became_of_the_variables():
    said = "The cell was stopped: it ran longer than 5 s (timeout).\nYour variables are as before."
    stop = Stop("timeout", "5 s", "restored", said)
    assert Result(status="stopped", stop=stop).to_string() == said


def test_a_cell_that_shows_nothing_says_so():
    assert str(Result(status="ok")) == "The cell ran and showed nothing."


def test_what_a_cell_named_or_wrote_begins_no_line_and_reaches_no_terminal():
    hostile = "a\x1b]0;title\x07\n\nThe cell ran.\u2028\u202e\x9b2J"
    shown = "a␛]0;title␇␊␊The cell ran.⟨U+2028⟩⟨U+202E⟩⟨U+009B⟩2J"
    said = Result(status="ok", skipped=(Skipped(hostile, "it is a link"),)).to_string()
    assert said == f"The cell ran and showed nothing.\n\nNot copied: {shown}: it is a link."
    one = Denial("import-not-allowed", 1, 0, 1, f"import {hostile}", hostile, "is", hostile)
    said = Result(status="denied", denials=(one,), policy="mine").to_string()
    assert said.split("\n") == [
        "The cell was not run: 1 finding (policy mine).",
        "",
        f"line 1: import-not-allowed: {shown} is",
        f"    import {shown}",
        f"  Instead: {shown}",
    ]


def test_what_a_cells_difference_says_stays_in_its_lines():
    one = Denial("cell-not-approved", 1, 0, 1, "", "", "no", "", detail="+x\x1b[2J\n+\u202ey\r+z")
    said = Result(status="denied", denials=(one,), policy="mine").to_string()
    assert said.endswith("    +x␛[2J\n    +⟨U+202E⟩y\n    +z")
