"""Values and files of a sandbox: what comes out, what goes in, and a guest that lies about either."""

import asyncio
import tracemalloc

import numpy as np
import pandas as pd
import pytest

from cellblock import AsyncSandbox, Sandbox
from cellblock.errors import ExchangeError, GuestError
from support import machines, processes

WHY_NOT = machines.no_bubblewrap()
needs_bwrap = pytest.mark.skipif(bool(WHY_NOT), reason=f"no bubblewrap: {WHY_NOT}")
pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(scope="module")
def data(home):
    """A sandbox under preset data."""
    with Sandbox("data", project=home / "project") as one:
        yield one


@pytest.mark.quick
def test_a_result_has_the_value_of_the_last_expression(data):
    cell = "{'n': None, 'list': [True, 2, 1.5, b'b'], 'inner': {'t': ('x', {1})}}"
    assert data.execute(cell).value == {
        "n": None, "list": [True, 2, 1.5, b"b"], "inner": {"t": ["x", [1]]},
    }  # fmt: skip
    assert data.execute("import numpy\nnumpy.arange(4).sum()").value == 6
    shown = ("x = 3", "3;", "1 / 0", "object()", "{1: 2}", "2**64", "[0] * 10_001", "'x' * 2**21")
    assert [data.execute(cell).value for cell in shown] == [None] * len(shown)


def test_a_result_that_is_a_small_table_or_column_has_it_as_its_value(data):
    given = pd.DataFrame({"x": [1.5, 2.5], "t": ["a", None]}, index=["r", "s"])
    data.set("given", given)
    pd.testing.assert_frame_equal(data.execute("given").value, given)
    pd.testing.assert_series_equal(data.execute("given.x").value, given.x)
    assert list(data.execute("given.columns").value) == ["x", "t"]
    many = "import pandas as pd\npd.DataFrame({'n': range(10_001)})"
    wide = "pd.DataFrame({str(n): [n] for n in range(257)})"
    assert [data.execute(cell).value for cell in (many, wide)] == [None, None]


def test_nothing_of_a_cells_own_class_runs_for_a_value(data):
    data.execute(
        "ran = []\n"
        "class Own(list):\n"
        "    def __getattribute__(self, name): ran.append(name)\n"
        "    def __iter__(self): ran.append('iter'); yield 7\n"
        "    def __len__(self): ran.append('len'); return 0\n"
        "    def __repr__(self): return ''\n"
        "own = Own([1, 2])"
    )
    assert (data.get("own"), data.get("ran")) == ([1, 2], [])


@pytest.mark.quick
def test_variables_are_set_and_got(data):
    values = {"a": [1, None], "text": "\U0001f600", "bytes": b"\0", "float": -0.5}
    data.set("given", values)
    assert data.execute("sorted(given), given['a']").value == [sorted(values), [1, None]]
    assert data.get("given") == values
    frame = pd.DataFrame({"x": [1.5, 2.5], "t": ["a", None]}, index=["r", "s"])
    data.set("frame", frame)
    data.set("array", np.eye(2))
    assert data.execute("frame.loc['s', 'x'] + array.sum()").value == 4.5
    pd.testing.assert_frame_equal(data.get("frame"), frame)
    assert np.array_equal(data.get("array"), np.eye(2))


def test_a_variable_that_was_set_outlives_a_killed_cell(data):
    data.set("kept", [1, 2])
    assert data.execute("import os\nos.kill(os.getpid(), 9)").stop.state == "restored"
    assert data.get("kept") == [1, 2]


def test_what_was_set_is_not_held_by_the_program(sandbox):
    def is_let_go():
        sandbox.execute("x = None")
        return tracemalloc.get_traced_memory()[0] < 8 << 20

    tracemalloc.start()
    try:
        for _ in range(6):
            sandbox.set("x", bytes(8 << 20))
        processes.until(is_let_go)
    finally:
        tracemalloc.stop()


def test_what_can_not_be_got_or_set_says_why(data, sandbox):
    data.execute("class A: pass\na = A()")
    for name, why in [("gone", "no such variable"), ("a", "A can't be passed as data")]:
        with pytest.raises(ExchangeError, match=f"{name}: .*{why}"):
            data.get(name)
    for name in ("_x", "a b", "if", ""):
        with pytest.raises(ExchangeError, match="can't be set: name a variable"):
            data.set(name, 1)
    with pytest.raises(ExchangeError, match="x: object can't be passed as data"):
        data.set("x", object())
    data.execute("import pandas as pd\ncolumn = pd.Series([[1]])")
    with pytest.raises(ExchangeError, match=r"column: .*column '0' of list.* can't be passed"):
        data.get("column")
    with pytest.raises(ExchangeError, match="import-not-allowed: pandas"):
        sandbox.set("x", pd.DataFrame({"x": [1]}))
    with pytest.raises(GuestError, match=r"use `with Sandbox.* or call its open\(\)"):
        Sandbox("safe").get("x")


LIE = """
from cellblock.guest import server
from cellblock.wire import messages
def lie(shell, request):
    return messages.VariableValue(id=request.id, value={})
server.get_variable = lie
"""
TABLE = "messages.Frame(library='pandas', columns=(messages.Column(name='a', {}),))"
LIES = [
    "messages.Data(b'\\x81\\x01\\x02')",
    "messages.Array('|O', (1,), bytes(8))",
    TABLE.format("type='string', length=1, buffers=(None, bytes([0] * 4 + [9] * 4), b'')"),
    TABLE.format("type='int64', length=2**31 - 1, buffers=(None, b'')"),
]


@pytest.mark.parametrize("lie", LIES, ids=range(len(LIES)))
def test_a_hostile_guests_value_is_refused_and_the_sandbox_goes_on(unsafe, lie):
    unsafe.execute(LIE.format(lie))
    with pytest.raises(ExchangeError, match="x: "):
        unsafe.get("x")
    assert unsafe.execute("6 * 7").value == 42


def test_a_value_that_is_none_in_a_result_is_left_out(unsafe):
    unsafe.execute(
        "from cellblock.wire import arrays\narrays.encode_small = lambda value: b'\\x81\\x01\\x02'"
    )
    r = unsafe.execute("1")
    assert (r.status, r.result, r.value) == ("ok", "1", None)


LYING = """
import msgspec
from cellblock.wire import arrays, messages
def column(length, data):
    return messages.Column(name='a', type='int8', length=length, buffers=(None, bytes(data)))
frame = messages.Frame(library='pandas', columns={})
sent = msgspec.msgpack.encode(msgspec.msgpack.Ext(1, msgspec.msgpack.encode(frame)))
arrays.encode_small = lambda value: sent
"""


@pytest.mark.parametrize(
    "columns", ["(column(1, 1),) * 257", "(column(10_001, 10_001),)", "(column(5, 1),)"]
)
def test_a_hostile_guests_table_in_a_result_is_left_out(unsafe, columns):
    assert unsafe.execute(LYING.format(columns)).success
    r = unsafe.execute("1")
    assert (r.status, r.result, r.value) == ("ok", "1", None)


# --- files ----------------------------------------------------------------------------------------


def test_files_go_in_and_come_out(data, tmp_path):
    (tmp_path / "in.csv").write_text("a\n1\n2\n")
    path = data.upload(tmp_path / "in.csv", "given/in.csv")
    cell = f"import pandas\npandas.read_csv({path!r}).mul(2).to_csv({path + '.out'!r})\n"
    assert data.execute(cell).success
    data.download(path + ".out", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == ",a\n0,2\n1,4\n"
    (tmp_path / "in.csv").write_text("b\n")
    data.upload(tmp_path / "in.csv", "given/in.csv")
    assert data.execute(f"open({path!r}).read()").value == "b\n"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["in.csv", "out.csv"]


def test_the_async_twins_do_the_same(tmp_path):
    async def use():
        (tmp_path / "a").write_text("text")
        async with AsyncSandbox("safe") as s:
            await s.set("x", [1])
            await s.upload(tmp_path / "a")
            await s.download("a", tmp_path / "b")
            return await s.get("x"), (await s.execute("x * 2")).value

    assert asyncio.run(use()) == ([1], [1, 1])
    assert (tmp_path / "b").read_text() == "text"
