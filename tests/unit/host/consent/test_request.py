# ruff: noqa: RUF001 - look-alike letters are what is tested
"""What is asked, word for word: nothing in it moves, hides, reorders or is left out unsaid."""

import hashlib
import itertools

import msgspec
import pandas as pd
import pytest

from cellblock.analysis.imports import Import
from cellblock.host.consent import approver, request
from cellblock.host.services.changes import Change
from cellblock.host.services.tools.calls import Call
from cellblock.wire import arrays, messages, values
from support.approvals import UNDER, call, cell

CALL = """\
┃ cellblock asks: may cell [3] call ops.write_file?
┃   path = 'data/a.csv'
┃   data = [1, {'x': b'\\x00'}]
┃   more[0] = None
┃   token = •••, kept out of sight: the tool calls it secret
┃ The cell begins: ops.write_file('a', 'b')
┃ once     this one call, with exactly these arguments
┃ session  each call of ops.write_file, whatever its arguments, until this
┃          kernel ends
┃ always   that, and in later kernels too: policy mine as it is now,
┃          /home/ada/lab
┃ To allow it, type 417 (once), 417 session or 417 always. Anything else is no.
┃ Answer: """
IMPORT = """\
┃ cellblock asks: may cell [3] import csv, requests?
┃   module = csv
┃       by its public names; reads tables
┃   package = requests
┃       as it is; trusted with all that this process may do
┃ The cell begins: import csv, requests
┃ once     in this cell; what it binds stays bound
┃ session  in all cells, until this kernel ends
┃ always   that, and in later kernels too: policy mine as it is now,
┃          /home/ada/lab
┃ To allow it, type 417 (once), 417 session or 417 always. Anything else is no.
┃ Answer: """
START = """\
┃ cellblock asks: may this kernel start with mode unsafe?
┃   the source of cells is not checked; all other limits stay as they are
┃ session  all that it runs, until this kernel ends
┃ always   that, and in later kernels too: policy mine as it is now,
┃          /home/ada/lab
┃ To allow it, type 417 session or 417 always. Anything else is no.
┃ Answer: """


def asked(wanted, raw="ops.write_file('a', 'b')", note=""):
    return str(approver.question(wanted, UNDER, "417", note, cell(raw)))


def of_call(made):
    """Return the request as it is put: with what is shown of it; None for none."""
    wanted = request.of_call(made)
    return None if wanted is None else request.with_lines(wanted)


def shown(*args, **kwargs):
    return "\n".join(of_call(call(*args, **kwargs)).shown)


def test_a_call_is_asked_about_with_all_its_arguments():
    wanted = of_call(call("data/a.csv", [1, {"x": b"\0"}], None, token="hunter2"))
    assert asked(wanted) == CALL


def test_imports_are_asked_about_with_what_comes_by_them():
    imports = [
        Import("module", "csv", "reads tables"),
        Import("package", "requests", "trusted with all that this process may do"),
    ]
    assert asked(request.of_imports(imports, "00"), "\n\nimport csv, requests\n") == IMPORT


def test_a_start_is_asked_about_with_what_it_means():
    assert asked(request.of_start()) == START


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        ("a\nb", r"'a\nb'"),
        ("\x1b[2J\x1b]0;x\x07", r"'\x1b[2J\x1b]0;x\x07'"),
        ("\r┃ cellblock", r"'\r┃ cellblock'"),
        ("gpj.\u202etxt", r"'gpj.\u202etxt'"),
        ("a\u200bb\u2060c\ufeff", r"'a\u200bb\u2060c\ufeff'"),
        ("e\u0301\u0301\u0301", r"'e\u0301\u0301\u0301'"),
        ("x\ufe0f\U000e0101", r"'x\ufe0f\U000e0101'"),
        ("\u05d0/..", r"'\u05d0/..'"),
        ("\u3164\u2800\uffa0", r"'\u3164\u2800\uffa0'"),
        ("\\u202e", r"'\\u202e'"),
        ("é漢", "'é漢'"),
    ],
)
def test_a_text_is_shown_so_that_it_can_be_read_in_one_way(value, literal):
    first = shown(value).split("\n")[0]
    assert first == f"  path = {literal}"


def named(*texts):
    """Return what is said of these texts' characters, as one line."""
    lines = shown(*texts).split("\n")
    at = next(n for n, line in enumerate(lines) if line.startswith("  not ASCII: "))
    told = [
        lines[at],
        *itertools.takewhile(lambda line: line.startswith(" " * 13), lines[at + 1 :]),
    ]
    return " ".join(line.strip() for line in told)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dаta", "а (U+0430)"),
        ("৪0", "৪ (U+09EA)"),  # Bengali's 4, to Decimal, too
        ("１0", "１ (U+FF11)"),
        ("results∕a․csv", "∕ (U+2215), ․ (U+2024)"),
        ("1‚000", "‚ (U+201A)"),
    ],
)
def test_letters_digits_and_signs_that_only_look_like_others_are_named(text, said):
    assert named(text) == f"not ASCII: {said}"


def test_what_looks_most_like_another_is_named_before_all_that_does_not():
    crowd = "漢字仮名交文éèêàùüöäñçãõ"
    said = named(f"{crowd}а৪")
    assert said.startswith("not ASCII: ৪ (U+09EA), а (U+0430), é (U+00E9), ")
    assert said.endswith(" and 8 more")


@pytest.mark.parametrize("key", ["a = 1\n┃ Answer", "a b", "", "x" * 61, "é"])
def test_a_name_that_is_none_stands_in_quotes(key):
    wanted = of_call(call(**{key: 1}))
    assert wanted.shown[0].startswith("  '")


def test_no_blank_is_lost_where_a_line_goes_on():
    text = "a" + " " * 300 + "b"
    lines = of_call(call(text)).shown
    joined = "".join(line[6:].removesuffix("¬") for line in lines[1:])
    assert lines[0][2:].removesuffix("¬") + joined == f"path = {text!r}"
    assert all(line.endswith("¬") for line in lines[:-1])


def test_what_is_too_long_to_be_shown_whole_is_offered_for_all_calls_only():
    wanted = of_call(call("a", "line\n" * 2_000))
    text = asked(wanted)
    assert not wanted.whole
    assert "┃   … 155 more lines …\n" in text
    assert "┃   It is too long to be shown whole: 10,0" in text
    assert "┃   So it can't be allowed by itself.\n" in text
    assert "┃ once" not in text
    assert "type 417 session or 417 always." in text
    assert len(text.split("\n")) < 40
    # What is larger still is not looked into.
    wanted = of_call(call("x" * 2_000_000))
    assert not wanted.whole
    assert wanted.shown[0].startswith("  It is too long to be shown whole: 2,000,0")


def staged(name, kind):
    return Change("/lab", name, kind, None if kind == "deleted" else 16, None)


def test_each_file_of_the_users_is_named_however_many_are_new():
    many = [staged(f"a{number:03}", "new") for number in range(300)]
    users = [staged("run.sh", "changed"), staged("zz", "deleted")]
    wanted = request.of_keeping([*many, *users], {}, ())
    assert wanted.whole
    assert wanted.shown == (
        "  changed = /lab/run.sh, 16 bytes",
        "  deleted = /lab/zz",
        "  new in /lab/, 300 files, 4.7 KiB: a000 … a299 (300)",
    )


def test_a_new_file_among_many_is_named():
    """A question of 62 files said how many there were, and pytest.toml was one of them."""
    names = [f"row{number}.csv" for number in range(60)]
    names += ["pytest.toml", "sub/plug.py", "sub/a, b", "sub/x … z (9)", "x7", "x8", "x08"]
    wanted = request.of_keeping([staged(name, "new") for name in names], {}, ())
    assert wanted.whole
    assert wanted.shown == (
        "  new in /lab/, 64 files, 1 KiB: pytest.toml,",
        "        row0.csv … row9.csv (10), row10.csv … row59.csv (50), x7, x8, x08",
        "  new in /lab/sub/, 3 files, 48 bytes: 'a, b', plug.py, 'x … z (9)'",
        "  not ASCII: … (U+2026)",
    )


def test_more_new_files_than_a_question_has_room_for_are_not_asked_about_and_not_all_read():
    names = [f"{hashlib.sha256(b'%d' % number).hexdigest()}.bin" for number in range(50_000)]
    many = [staged(name, "new") for name in names]
    assert request.of_keeping(many[:20], {}, ()).whole
    wanted = request.of_keeping(many, {}, ())
    assert not wanted.whole
    assert len(wanted.shown) == 40
    narrow = [staged(f"{number}x" + "\u0301" * 100, "new") for number in range(0, 400, 2)]
    assert not request.of_keeping(narrow, {}, ()).whole
    for number in (300, 3):
        few = [staged(f"folder{at}/{name}", "new") for at, name in enumerate(names[:number])]
        assert request.of_keeping(few, {}, ()).whole is (number == 3)


@pytest.mark.parametrize("kind", ["changed", "deleted"])
def test_what_replaces_or_deletes_more_files_than_can_be_named_is_not_asked_about(kind):
    users = [staged(f"{number}", kind) for number in range(41)]
    assert request.of_keeping(users[:40], {}, ()).whole
    assert not request.of_keeping(users, {}, ()).whole
    assert not request.of_keeping([*users[:40], staged("new", "new")], {}, ()).whole
    assert request.too_many(users) == (
        "41 staged files can't be asked about at once: a question has 40 lines, and names each "
        "file; `cellblock changes` in a terminal lists them. Keep fewer paths at once"
    )


def test_each_request_has_a_hash_of_its_own():
    same = [of_call(call("a", "b", number=n)).sha256 for n in (1, 2)]
    other = [of_call(one).sha256 for one in (call("a", "c"), call("a", data="b"))]
    assert len({*same, *other}) == 3


EXTENSION = msgspec.msgpack.encode(([msgspec.msgpack.Ext(9, b"to evil.example")], {}))
NUMBERED = msgspec.msgpack.encode(([], {1: 2}))


@pytest.mark.parametrize(
    "encoded", [EXTENSION, NUMBERED, b"\x01", b"\x91\x01", b"\x92\x01\x01", b"\xc1", b""]
)
def test_what_is_no_data_can_not_be_asked_about(encoded):
    made = msgspec.structs.replace(call(), arguments=msgspec.Raw(encoded))
    assert of_call(made) is None


def test_a_forged_call_with_more_than_it_may_have_is_shown_as_it_is():
    bare = messages.Tool(name="add", parameters=(messages.Parameter(name="a", kind=1),))
    lines = of_call(call(1, 2, tool=bare, a=3)).shown
    assert lines == ("  a = 1", "  argument 2 = 2", "  a = 3")


def test_arguments_that_are_nested_deeper_than_is_followed_are_not_shown_whole():
    """However deep: it is decided with less of the stack left than when it was looked at."""
    for depth in range(900, 1_100):
        encoded = b"\x92\x91" + b"\x91" * depth + b"\xc0\x80"
        wanted = request.of_call(
            Call(1, messages.Tool(name="t"), msgspec.Raw(encoded), answer=print)
        )
        if wanted is not None:
            made = request.with_lines(wanted)
            assert made.whole or "can't be allowed by itself" in made.shown[-1]


TABLE = pd.DataFrame(
    {
        "city": ["Rome", None, "Bari"],
        "sold": [1, 2, 3],
        "price": [1.5, float("nan"), -0.0],
        "open": [True, False, True],
        "day": pd.to_datetime(["2026-01-01 00:00", "2026-01-02 12:30", None]),
        "kind": pd.Categorical(["u", None, "v"]),
    },
    index=pd.Index(["a", "b", "c"], name="key"),
)


def of_table(*args, **kwargs):
    arguments = values.encode(values.plain((list(args), kwargs), arrays.data), 2**24)
    return of_call(msgspec.structs.replace(call(), arguments=arguments))


def test_a_table_is_shown_by_its_shape_columns_and_rows():
    wanted = of_table(TABLE, {"of": [TABLE[["sold"]].reset_index(drop=True)]})
    assert wanted.whole
    assert list(wanted.shown) == [
        "  path = a table of pandas: 3 rows, 6 columns",
        "    columns: index 'key' (text), 'city' (text), 'sold' (int64),",
        "        'price' (float64), 'open' (bool), 'day' (time),",
        "        'kind' (category of text)",
        "    row 0: 'a', 'Rome', 1, 1.5, True, 2026-01-01 00:00:00, 'u'",
        "    row 1: 'b', None, 2, None, False, 2026-01-02 12:30:00, None",
        "    row 2: 'c', 'Bari', 3, -0.0, True, None, 'v'",
        "  data = {'of': [<a table of pandas: 3 rows, 1 column; columns: 'sold' (i¬",
        "      nt64); row 0: 1; row 1: 2; row 2: 3>]}",
    ]


@pytest.mark.parametrize("rows", [21, 100_000])
def test_a_long_table_is_shown_by_its_first_rows_and_not_allowed_by_itself(rows):
    wanted = of_table("x", pd.DataFrame({"n": range(rows), "text": "t" * 70}))
    assert not wanted.whole
    shown = [line for line in wanted.shown if "path" not in line]
    assert shown[0] == f"  data = a table of pandas: {rows:,} rows, 2 columns"
    assert shown[2] == f"    row 0: 0, '{'t' * 36}..."
    assert shown[7] == f"    ... {rows - 5:,} more rows"
    assert not any("not ASCII" in line for line in shown)
    assert shown[-1] == "  So it can't be allowed by itself."


def test_only_a_tables_own_letters_are_named_and_a_long_field_is_broken_with_a_mark():
    wanted = of_table(
        pd.DataFrame({"n": range(30), "\u0430": "\u2026"} | {str(n): 0 for n in range(30)})
    )
    assert wanted.shown[-3:-2] == ("  not ASCII: \u0430 (U+0430), \u2026 (U+2026)",)
    (line,) = (line for line in of_table(pd.DataFrame({"x" * 70: [1]})).shown if "x" in line[-2:])
    assert line.endswith("x\N{NOT SIGN}")


@pytest.mark.parametrize(
    "forged",
    [
        {"buffers": (None, b"\x01")},
        {"buffers": (None, None)},
        {"buffers": (None,)},
        {"type": "string", "buffers": (None, b"\x05\0\0\0\xff\0\0\0", b"x")},
        {"type": "string", "buffers": (None, b"\0\0\0\0\x01\0\0\0", b"\xff")},
        {"type": "list<x>"},
    ],
)
def test_a_forged_table_is_not_shown_whole(forged):
    column = messages.Column(name="n", type="int64", length=1, buffers=(None, b"\0" * 8))
    frame = messages.Frame(library="pandas", columns=(msgspec.structs.replace(column, **forged),))
    extension = msgspec.msgpack.Ext(1, msgspec.msgpack.encode(frame))
    wanted = of_call(
        msgspec.structs.replace(
            call(), arguments=msgspec.Raw(msgspec.msgpack.encode(([extension], {})))
        )
    )
    assert not wanted.whole
    assert "    row 0: <can't be read>" in wanted.shown
