# ruff: noqa: RUF001 - look-alike letters are what is tested
"""What is asked, word for word: nothing in it moves, hides, reorders or is left out unsaid."""

import itertools

import msgspec
import pytest

from cellblock.analysis.imports import Import
from cellblock.host.consent import approver, request
from cellblock.host.services.tools.calls import Call
from cellblock.wire import messages
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
┃   what cells say is not checked; what their process may do is bounded as ever
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
