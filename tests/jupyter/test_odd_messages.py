"""Messages that are odd: those that mean harm cost nobody anything, those that are legal work."""

import json
import random
import time

import pytest

from cellblock.host.files import HOST_MEMORY
from support import reading
from support.client import Client
from support.processes import peak_memory

LATE = 5.0


def answers(kernel):
    began = time.monotonic()
    reply, published = kernel.run("6 * 7")
    assert reply["status"] == "ok"
    assert reading.result(published) == "42"
    assert time.monotonic() - began < LATE


def send_raw(kernel, parts, channel="shell"):
    getattr(kernel, channel).send_multipart([b"<IDS|MSG>", kernel.session.sign(parts), *parts])


# --- parts of any shape, properly signed ----------------------------------------------------------

VALUES = [
    *(None, True, 0, -1, 10**400, 1.5, "", "x" * 70_000, [], {}, [[]], {"a": {"b": [1]}}),
    *("\x00", "\u2028", "execute_request", "__class__", "../../x", "<script>"),
]
KINDS = (
    *("execute_request", "complete_request", "inspect_request", "is_complete_request"),
    *("history_request", "comm_info_request", "comm_open", "comm_msg", "comm_close"),
    *("kernel_info_request", "debug_request", "create_subshell_request", "input_reply"),
    *("interrupt_request", "usage_request", "connect_request", "apply_request", ""),
    *("execute_reply", "status", "stream", "x_request" * 100),
)
FIELDS = (
    *("code", "silent", "store_history", "user_expressions", "allow_stdin", "stop_on_error"),
    *("cursor_pos", "detail_level", "hist_access_type", "n", "session", "start", "stop"),
    *("pattern", "output", "raw", "unique", "target_name", "comm_id", "data", "value"),
)
HEADER = ("msg_id", "msg_type", "session", "username", "date", "version", "subshell_id")


@pytest.mark.parametrize("seed", range(4))
def test_messages_of_random_shapes_are_answered_or_dropped(safe, seed):
    rng = random.Random(seed)
    for _ in range(120):
        content = {rng.choice(FIELDS): rng.choice(VALUES) for _ in range(rng.randrange(6))}
        header = safe.session.msg_header(rng.choice(KINDS))
        for name in rng.sample(HEADER, rng.choice([0, 0, 0, 1, 2])):
            if rng.random() < 0.5:
                header.pop(name, None)
            else:
                header[name] = rng.choice(VALUES)
        made = [header, rng.choice([{}, header, rng.choice(VALUES)]), rng.choice([{}, *VALUES])]
        parts = [safe.session.pack(part) for part in (*made, content)]
        send_raw(safe, parts, rng.choice(["shell", "shell", "control", "stdin"]))
    answers(safe)
    assert "Traceback" not in safe.stderr()


NO_MESSAGE = [
    [b"{}", b"{}", b"{}"],
    [b"", b"", b"", b""],
    [b"null"] * 4,
    [b"[]"] * 4,
    [b"{" * 100_000] * 4,
    [b'{"a":' * 50_000 + b"1" + b"}" * 50_000] * 4,
    [b"[" * 3_000_000, b"{}", b"{}", b"{}"],
    [b"\xff\xfe", b"{}", b"{}", b"{}"],
    [b'{"msg_type": "execute_request", "msg_type": "x"}', b"{}", b"{}", b"{}"],
    [
        b'{"msg_type": "execute_request"}',
        b"{}",
        b"{}",
        b'{"code": "\\ud83d", "stop_on_error": false}',
    ],
    [
        b'{"msg_type": "complete_request"}',
        b"{}",
        b"{}",
        b'{"code": "\\ud83d", "cursor_pos": 1}',
    ],
    [b'{"msg_type": "execute_request"}', b"{}", b"{}", b'{"code": "1", "silent": NaN}'],
    [b'{"msg_type": "kernel_info_request"}', b"{}", b"{}", b"{}", *[b""] * 1_000],
    [b'{"msg_type": "comm_msg"}', b"{}", b"{}", b'{"comm_id": "a"}', b"x" * 30_000_000],
]


def test_signed_parts_that_are_no_message_are_dropped(safe):
    for number, parts in enumerate(NO_MESSAGE):
        send_raw(safe, parts)
        send_raw(safe, parts, "control")
        assert safe.run("1")[0]["status"] == "ok", number


def test_identities_of_any_number_are_sent_back_as_they_came(safe):
    identities = [b"a" * 200, b"", b"\x00", *[b"b"] * 100]
    msg = safe.session.msg("kernel_info_request", {})
    safe.shell.send_multipart([*identities, *safe.session.serialize(msg)])
    reply = safe.shell.recv_multipart()
    assert reply[: len(identities)] == identities
    answers(safe)


def test_a_flood_from_a_stranger_leaves_the_kernel_its_time(safe):
    with Client(safe.info | {"key": "0" * 32}) as stranger:
        for _ in range(30_000):
            stranger.send("kernel_info_request", {})
        answers(safe)


# --- what one request may ask for ---------------------------------------------------------------


def test_expressions_beyond_a_hundred_are_not_looked_at(safe):
    mid = safe.execute_send("1", user_expressions={f"n{i}": f"{i}" for i in range(50_000)})
    began = time.monotonic()
    reply = safe.reply(mid)["content"]
    assert time.monotonic() - began < LATE
    assert reply["user_expressions"]["n99"]["data"]["text/plain"] == "99"
    assert len(reply["user_expressions"]) == 100
    answers(safe)


def test_an_expression_with_an_endless_name_costs_no_variable(safe):
    safe.run("kept = 1")
    asked = {"n" * 100_000: "1", "x": "2", "s": 3, "l": ["open"]}
    reply, _ = safe.run("1", user_expressions=asked)
    assert set(reply["user_expressions"]) == {"x"}
    assert safe.run("kept")[0]["status"] == "ok"


def test_an_expression_with_an_endless_value_costs_no_variable(safe):
    safe.run("kept = 1")
    reply, _ = safe.run("1", user_expressions={"x": "'a' * 10**8", "y": "1"})
    assert reply["status"] == "ok"
    assert reply["user_expressions"]["x"]["status"] == "error"
    assert safe.run("kept")[0]["status"] == "ok"


@pytest.mark.parametrize("piece", ["a=1;", "[0],", "f(a)\n"])
def test_a_cell_of_too_many_words_costs_the_host_no_memory(safe, piece):
    before = peak_memory(safe.proc.pid)
    reply, _ = safe.run(piece * 1_000_000)
    assert (reply["ename"], peak_memory(safe.proc.pid) - before < HOST_MEMORY) == (
        "PolicyProblem",
        True,
    )


@pytest.mark.parametrize("silent", [False, True])
def test_a_cell_too_long_to_be_looked_at_is_refused_with_a_reason(safe, silent):
    mid = safe.execute_send("1 + " * 1_100_000 + "1", silent=silent)
    reply, published = safe.reply(mid)["content"], safe.until_idle(mid)
    assert (reply["status"], reply["ename"]) == ("error", "PolicyProblem")
    assert "4,400,001 characters; at most 4,194,304 are allowed" in reply["evalue"]
    assert len(reading.cards(published, "problem")) == (not silent)
    answers(safe)


def test_a_long_cell_that_is_data_runs(safe):
    reply, published = safe.run(f"len({'x' * 2_000_000!r})")
    assert (reply["status"], reading.result(published)) == ("ok", "2000000")


@pytest.mark.parametrize("answer", ["x" * 40_000_000, ["a"], {"a": 1}, 7, None])
def test_an_answer_of_any_size_and_type_ends_the_wait_and_nothing_else(safe, answer):
    safe.run("kept = 1")
    mid = safe.execute_send("len(input())", allow_stdin=True)
    safe.recv("stdin")
    safe.send("input_reply", {"value": answer}, "stdin")
    assert safe.reply(mid)["content"]["status"] == "ok"
    size = 1 << 20 if isinstance(answer, str) else 0
    assert reading.result(safe.until_idle(mid)) == str(size)
    assert safe.run("kept")[0]["status"] == "ok"


CLAIM = """
import cellblock.guest.server as serve
from cellblock.wire import messages
def claim(shell, rules, request):
    return messages.Completed(id=request.id, matches=["bait"], start=START, end=END)
serve.complete = claim
"""


def test_a_hostile_guest_names_no_more_than_the_cursors_line(start):
    kernel = start("unsafe", "--allow-unsafe")
    code = "first = 1\nsecond.attr\nthird = 3"
    cursor = code.index(".attr") + 3
    line = code.index("second"), code.index("\nthird")
    for first, last in ((0, 2**30), (2**30, 2**30), (9, 3), (0, 0)):
        kernel.run(CLAIM.replace("START", str(first)).replace("END", str(last)))
        reply = kernel.ask("complete_request", {"code": code, "cursor_pos": cursor})["content"]
        assert reply["matches"] == ["bait"]
        span = line[0], reply["cursor_start"], cursor, reply["cursor_end"], line[1]
        assert list(span) == sorted(span), (first, last)


# --- odd and legal ------------------------------------------------------------------------------


def test_a_silent_cell_that_fails_aborts_nothing_behind_it(safe):
    """ipykernel does not either: extensions send set-up code silently, beside the user's cells."""
    first = safe.execute_send("import gc", silent=True, store_history=False, stop_on_error=True)
    second = safe.execute_send("'ran'")
    assert safe.reply(first)["content"]["status"] == "error"
    assert safe.reply(second)["content"]["status"] == "ok"


def test_a_cell_that_fails_aborts_all_that_were_sent_behind_it(safe):
    first = safe.execute_send("import time\ntime.sleep(0.5)\n1/0", stop_on_error=True)
    behind = [safe.execute_send("ran = 1") for _ in range(700)]
    assert safe.reply(first)["content"]["status"] == "error"
    assert {safe.reply(mid)["content"]["status"] for mid in behind} == {"aborted"}
    assert safe.run("ran")[0]["ename"] == "NameError"


SET_UP = [
    "import sys",
    "%config InlineBackend.figure_format = 'retina'",
    "%matplotlib inline",
    "__jupyter_exec_background__ = None",
    "import os\nos.chdir('/')",
    "",
]


def test_set_up_code_that_extensions_send_silently_is_answered_without_a_word(safe):
    for code in SET_UP:
        reply, published = safe.run(code, silent=True, store_history=False, stop_on_error=False)
        assert reply["status"] in {"ok", "error"}, code
        assert [m["msg_type"] for m in published] == ["status", "status"], code
    answers(safe)


def test_harmless_expressions_have_their_values(safe):
    safe.run("class A:\n    def _repr_html_(self): return '<b>a</b>'\na = A()\nd = {'k': [1, 2]}")
    asked = {"sum": "1 + 1", "html": "a", "key": "d['k'][0]", "f": "f'{1 + 1:>4}'", "l": "(lambda x: x)(3)",
             "walrus": "(w := 5)", "bad": "1/0", "denied": "__import__('os')", "none": "None", "odd name é": "'é'"}  # fmt: skip
    values = safe.run("", silent=True, user_expressions=asked)[0]["user_expressions"]
    plain = {k: v["data"]["text/plain"] for k, v in values.items() if v["status"] == "ok"}
    assert plain | {"html": ""} == {
        "sum": "2",
        "html": "",
        "key": "1",
        "f": "'   2'",
        "l": "3",
        "walrus": "5",
        "none": "None",
        "odd name é": "'é'",
    }
    assert values["html"]["data"]["text/html"] == "<b>a</b>"
    assert [values[name]["ename"] for name in ("bad", "denied")] == [
        "ZeroDivisionError",
        "PolicyDenied",
    ]


COMPLETIONS = [
    ("word = 'abc'", "word.upp", "upper"),
    ("d = {'alpha': {'beta': 1}}", "d['al", "alpha"),
    ("d = {'alpha': {'beta': 1}}", "d['alpha']['be", "beta"),
    ("class C:\n    field = 'x'\nc = C()", "c.fie", "field"),
    ("class C:\n    field = 'x'\nc = C()", "c.field.upp", "upper"),
    ("def f(*, width): pass", "f(wid", "width="),
    ("import math", "math.isc", "isclose"),
    ("import math", "[math.isc", "isclose"),
    ("items = [1, 2]", "items.app", "append"),
    ("items = ['a']", "items[0].upp", "upper"),
    ("", "'abc'.upp", "upper"),
    ("", "[1, 2].app", "append"),
    ("", "{}.ite", "items"),
    ("longname = 1", "x = longn", "longname"),
    ("longname = 1", "if longn", "longname"),
    ("longname = 1", "y = 1\nfor i in longn", "longname"),
    ("words = 'a'", "def g():\n    return words.upp", "upper"),
    ("", "%tim", "%timeit"),
    ("", "imp", "import"),
    ("", "\\alpha", "\u03b1"),
]


def test_completion_offers_what_can_be_looked_up(safe):
    for before, code, match in COMPLETIONS:
        safe.run(before)
        content = {"code": code, "cursor_pos": len(code)}
        found = safe.ask("complete_request", content)["content"]["matches"]
        ends = {m.lstrip(".").rpartition(".")[2] for m in found}
        assert match in {*found, *ends}, (code, found)


OBJECTS = """
import asyncio, collections, dataclasses, enum, functools, json, math, random, re, statistics, typing
kept = 1
def f(a, *, b: int = 1) -> str:
    'Doc.'
    return str(a)
async def co(): return 1
def gen(): yield 1
class C:
    'Doc of C.'
    x: int = 1
    @property
    def p(self): return 1
    def m(self): return 2
    @classmethod
    def k(cls): return 3
    @staticmethod
    def s(): return 4
    def __getattr__(self, name): raise AttributeError(name)
@dataclasses.dataclass
class D:
    x: int = 1
class E(enum.Enum):
    A = 1
N = collections.namedtuple('N', 'x y')
P = functools.partial(f, 1)
c, d, e, n, g, l = C(), D(), E.A, N(1, 2), gen(), lambda x: x
r, i, t, b = re.compile('a'), iter([1]), typing.Optional[int], b'x'
"""
SEEN = (
    *("f", "co", "gen", "C", "C.p", "C.k", "c", "c.m", "c.p", "c.s", "D", "d", "E", "e", "N", "n"),
    *("P", "g", "l", "r", "i", "t", "b", "json", "json.dumps", "math.sin", "random.Random", "len"),
    *("print", "int", "kept", "asyncio.run", "re.compile", "statistics.mean", "%time", "%%time"),
    *(
        "1",
        "'a'",
        "[1]",
        "nothing",
        "f(1",
        "c.nothing",
        "class",
        "x =",
        "f'{kept",
        "(",
        "@f",
        "%who",
    ),
)


def test_looking_at_things_costs_no_variables(safe):
    """Whatever looks, in IPython or the library, is taken for nobody's attack."""
    assert safe.run(OBJECTS)[0]["status"] == "ok"
    for code in SEEN:
        sent = []
        for text in (
            code,
            f"{code}.",
            f"{code}(",
            f"{code}['",
            f"if 1:\n    y = {code}.",
            f"{code}?",
        ):
            content = {"code": text, "cursor_pos": len(text)}
            sent.append(safe.send("complete_request", content))
            # At level 1, IPython looks for all that it looks for at level 0.
            for level in (0, 1) if text is code else (1,):
                safe.send("inspect_request", content | {"detail_level": level})
            safe.send("is_complete_request", {"code": text})
        assert [safe.reply(mid)["content"]["status"] for mid in sent] == ["ok"] * 6, code
        safe.run(f"{code}?", stop_on_error=False)
        safe.run(f"{code}??", stop_on_error=False)
        assert safe.run("kept")[0]["status"] == "ok", code


def test_data_frames_complete_their_columns(start, world):
    pytest.importorskip("pandas", reason="pandas is not installed")
    kernel = start("data", world=world)
    kernel.run("import pandas as pd\ndf = pd.DataFrame({'price': [1.0], 'place': ['a']})")
    for code, match in (
        ("df['pri", "price"),
        ("df.pla", "place"),
        ("df['price'].mea", "mean"),
        ("df.loc[:, 'pl", "place"),
        ("pd.DataFr", "DataFrame"),
        ("pd.read_csv(filepath_or", "filepath_or_buffer="),
    ):
        content = {"code": code, "cursor_pos": len(code)}
        found = kernel.ask("complete_request", content)["content"]["matches"]
        assert any(m.lstrip(".").endswith(match) for m in found), (code, found)
    world.write("numbers.csv", "a\n1\n")
    found = kernel.ask("complete_request", {"code": "pd.read_csv('num", "cursor_pos": 16})
    assert [json.dumps(m) for m in found["content"]["matches"] if "numbers.csv" in m]
