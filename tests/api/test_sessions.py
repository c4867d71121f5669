"""Sessions that are saved and loaded: what is kept, what is named, and files that lie."""

import asyncio
import json
import os
import zipfile

import msgspec
import numpy as np
import pandas as pd
import pytest

from cellblock import AsyncSandbox, Sandbox
from cellblock.errors import ExchangeError
from cellblock.wire import messages

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(scope="module")
def saved(home, tmp_path_factory):
    """A file of a sandbox under preset data, with the values in it, and what ``save`` returned."""
    frame = pd.DataFrame({"x": [1.5, 2.5], "t": ["a", None]}, index=["r", "s"])
    values = {"frame": frame, "array": np.eye(2), "nested": {"a": [1, {"b": None}], "raw": b"\0"}}
    folder = tmp_path_factory.mktemp("saved")
    with Sandbox("data", project=home / "project") as one:
        for name, value in values.items():
            one.set(name, value)
        return folder / "one.session", values, one.save(folder / "one.session")


def test_arrays_tables_and_nested_data_go_on_in_another_sandbox(saved, home):
    path, values, session = saved
    assert (session.kept, session.missing) == (("array", "frame", "nested"), ())
    assert [one.name for one in path.parent.iterdir()] == ["one.session"]
    assert path.stat().st_mode & 0o777 == 0o600
    with Sandbox("data", project=home / "project") as other:
        loaded = other.load(path)
        assert (loaded.kept, loaded.missing, loaded.results) == (session.kept, (), ())
        assert other.execute("import os\nos.kill(os.getpid(), 9)").stop.state == "restored"
        pd.testing.assert_frame_equal(other.get("frame"), values["frame"])
        assert np.array_equal(other.get("array"), values["array"])
        assert other.get("nested") == values["nested"]


def test_what_a_policy_does_not_allow_is_not_loaded_under_it(saved, sandbox):
    path, values, _ = saved
    loaded = sandbox.load(path)
    assert (loaded.kept, sandbox.get("nested")) == (("nested",), values["nested"])
    assert [one.name for one in loaded.missing] == ["array", "frame"]
    assert "import-not-allowed: pandas" in loaded.missing[1].why


@pytest.mark.quick
def test_what_is_no_data_is_named_and_its_cells_run_again(sandbox, pool, tmp_path):
    for cell in ("def twice(n): return n * 2\nstate = 0", "unrelated = 1", "state = twice(4)"):
        sandbox.execute(cell)
    session = sandbox.save(tmp_path / "s")
    assert session.kept == ("state", "unrelated")
    (missing,) = session.missing
    assert (missing.name, missing.type, missing.cells) == ("twice", "function", (1,))
    assert "function can't be passed as data" in missing.why
    with pool.sandbox() as other:
        assert list(other.load(tmp_path / "s").to_run) == [1]
        assert other.execute("twice(1)").error.type == "NameError"
        loaded = other.load(tmp_path / "s", rerun=True)
        assert ([one.status for one in loaded.results], loaded.missing) == (["ok"], ())
        # The cell that was run again set the state to 0: what was saved stands.
        assert other.execute("twice(state)").value == 16
        assert other.save(tmp_path / "s").missing[0].cells == (2,)


def test_cells_whose_doing_is_gone_are_not_run_again(unsafe, tmp_path):
    unsafe.execute("def f(): return 1")
    unsafe.execute("def f(): return 2")
    unsafe.execute("%undo")
    unsafe.execute("def f(): return 3\nimport os\nos.kill(os.getpid(), 9)")
    unsafe.execute("def f(): return 4\n1 / 0")
    unsafe.execute("def f(): return", timeout=1e-9)
    (missing,) = (one for one in unsafe.save(tmp_path / "s").missing if one.name == "f")
    assert missing.cells[:2] == (1, 5)
    with next(iter(unsafe.fork())) as fork:
        fork.execute("def f(): return 5")
        (missing,) = (one for one in fork.save(tmp_path / "s").missing if one.name == "f")
        assert (missing.cells[:2], missing.cells[-1]) == ((1, 5), 7)


def test_the_async_twins_do_the_same(tmp_path):
    async def use():
        async with AsyncSandbox("safe") as s:
            await s.execute("x = [1]\nf = lambda: x")
            await s.save(tmp_path / "s")
        async with AsyncSandbox("safe") as s:
            await s.load(tmp_path / "s", rerun=True)
            return (await s.execute("f()")).value

    assert asyncio.run(use()) == [1]


@pytest.mark.filterwarnings("error")
def test_a_save_that_is_cancelled_leaves_the_file_as_it_was(tmp_path):
    async def use():
        async with AsyncSandbox("safe") as s:
            await s.execute("x = 1\ny = 'y' * 10**7\nz = y")
            await s.save(tmp_path / "s")
            before = (tmp_path / "s").stat()
            saving = asyncio.create_task(s.save(tmp_path / "s"))
            for _ in range(1_000_000):
                if len(list(tmp_path.iterdir())) > 1:
                    break
                await asyncio.sleep(0)
            saving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await saving
            assert (await s.execute("x")).value == 1
            return before

    assert asyncio.run(use()) == (tmp_path / "s").stat()
    assert [one.name for one in tmp_path.iterdir()] == ["s"]


# --- a file that is somebody else's -----------------------------------------------------------------


def data_of(value):
    return msgspec.msgpack.encode(messages.Data(msgspec.msgpack.encode(value)))


SESSION = {"format": 1, "cellblock": "", "policy": "", "policy_sha256": ""}
X = {"name": "x", "type": "int"}


def write(path, variables, members, *, compression=zipfile.ZIP_STORED, **changed):
    with zipfile.ZipFile(path, "w", compression) as archive:
        session = {**SESSION, "variables": variables, **changed}
        archive.writestr("session.json", json.dumps(session))
        for name, content in members.items():
            archive.writestr(name, content)


def test_names_and_values_that_lie_are_named_and_the_others_set(sandbox, tmp_path):
    names = ["_x", "if", "a b", "../x", "\x1b[2J", "", "wrong", "array", "deep", "large", "x"]
    values = dict.fromkeys(range(len(names)), data_of(7))
    values[6] = b"\x81\x01\x02"
    values[7] = msgspec.msgpack.encode(messages.Array("|O", (1,), bytes(8)))
    values[8] = msgspec.msgpack.encode(messages.Data(b"\x91" * 10_000 + b"\x01"))
    values[9] = data_of(bytes(25 << 20))
    variables = [{"name": name, "type": "int"} for name in names]
    write(tmp_path / "s", variables, {f"values/{n}": value for n, value in values.items()})
    loaded = sandbox.load(tmp_path / "s")
    assert (loaded.kept, sandbox.get("x")) == (("x",), 7)
    assert len(loaded.missing) == 10
    assert all("\x1b" not in one.name for one in loaded.missing)
    assert all("can't be set" in one.why for one in loaded.missing[:6])
    assert [one.name for one in sandbox.variables()] == ["x"]


def test_a_strangers_cells_run_under_the_policy_and_alone_where_that_was_asked_for(
    sandbox, tmp_path
):
    lines = "f = open", "g = 1 / 0", "h = 1", "ran = 1"
    cells = [{"count": n, "source": line} for n, line in enumerate(lines, 1)]
    variables = [
        {"name": name, "type": "object", "why": "no data", "cells": [n]}
        for n, name in enumerate("fgh", 1)
    ]
    write(tmp_path / "s", variables, {}, cells=cells)
    assert list(sandbox.load(tmp_path / "s").to_run) == [1, 2, 3]
    assert sandbox.variables() == ()
    loaded = sandbox.load(tmp_path / "s", rerun=True)
    assert [one.status for one in loaded.results] == ["denied", "error", "ok"]
    assert [one.name for one in loaded.missing] == ["f", "g"]
    assert [one.name for one in sandbox.variables()] == ["h"]


def lie_of(change):
    """Return what writes a good file, and then changes its bytes."""

    def make(path):
        write(path, [X], {"values/0": data_of(1)})
        path.write_bytes(change(path.read_bytes()))

    return make


def bomb(path):
    zeros = b"\xc6\x10\0\0\0" + bytes(2**28)
    write(path, [X], {"values/0": zeros}, compression=zipfile.ZIP_DEFLATED)


def sharing(path):
    """Have all members be the same bytes."""
    content = data_of("x" * 1_000)
    write(path, [X] * 200, {"values/0": content})
    with zipfile.ZipFile(path, "a") as archive:
        first = archive.getinfo("values/0")
        for number in range(1, 200):
            twin = zipfile.ZipInfo(f"values/{number}")
            twin.header_offset, twin.CRC = first.header_offset, first.CRC
            twin.file_size = twin.compress_size = first.file_size
            archive.filelist.append(twin)
        archive._didModify = True


def directory(path):
    """Have so many members that it takes more memory to list them than the file is large."""
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(10_000):
            archive.writestr(f"values/{number}", b"")


def link(path):
    write(path.with_name("there"), [X], {"values/0": data_of(1)})
    path.symlink_to("there")


def deep(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("session.json", '{"other": ' + "[" * 100_000)


#: What writes each, and of what is said then.
FILES = {
    "empty": (lambda path: path.write_bytes(b""), "unpack"),
    "truncated": (lie_of(lambda content: content[:-30]), "no zip"),
    "first half gone": (lie_of(lambda content: content[len(content) // 2 :]), "a part is missing"),
    "changed": (lie_of(lambda content: content.replace(b'"int"', b'"inT"')), "CRC"),
    "zip64": (lie_of(lambda old: old[:-22] + b"PK\6\7" + bytes(16) + old[-22:]), "no zip"),
    "comment": (lie_of(lambda content: content[:-2] + b"\1\0x"), "no zip"),
    "compressed": (bomb, "compressed"),
    "members that share bytes": (sharing, "share"),
    "ten thousand members": (directory, "no zip"),
    "a path": (lambda path: write(path, [], {"../evil": b""}), "other members"),
    "an absolute path": (lambda path: write(path, [], {"/evil": b""}), "other members"),
    "no value": (lambda path: write(path, [X], {}), "other members"),
    "later format": (lambda path: write(path, [], {}, format=2), r"format"),
    "a wrong type": (lambda path: write(path, {"x": 1}, {}), r"Expected `array`"),
    "too many variables": (lambda path: write(path, [X] * 1_001, {}), "length <= 1000"),
    "deep": (deep, "recursion"),
    "a link": (link, "a link: name the file itself"),
    "a folder": (lambda path: path.mkdir(), "not a regular file"),
    "a pipe": (os.mkfifo, "not a regular file"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_refused_before_anything_is_set(name, sandbox, tmp_path):
    FILES[name][0](tmp_path / "s")
    with pytest.raises(ExchangeError, match=f"/s is .*{FILES[name][1]}"):
        sandbox.load(tmp_path / "s")
    assert sandbox.variables() == ()


def test_a_link_is_replaced_and_nothing_is_left_of_a_save_that_failed(sandbox, tmp_path):
    (tmp_path / "other").write_text("mine")
    (tmp_path / "s").symlink_to("other")
    (tmp_path / "folder").mkdir()
    sandbox.save(tmp_path / "s")
    with pytest.raises(IsADirectoryError):
        sandbox.save(tmp_path / "folder")
    assert (tmp_path / "other").read_text() == "mine"
    assert not (tmp_path / "s").is_symlink()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["folder", "other", "s"]


LIES = """
from cellblock.guest import server
from cellblock.wire import messages
def listed(shell, number):
    names = "../x", "x", "\\x1b[2J", "y", "z"
    return messages.Variables(
        id=number, variables=tuple(messages.Variable(name=n, type="\\x1b" * 900) for n in names)
    )
def value(shell, request):
    given = {"x": None, "y": messages.Array("|O", (2**50,), b""), "z": messages.Data(b"\\x07")}
    return messages.VariableValue(id=request.id, value=given[request.name])
server.list_variables, server.get_variable = listed, value
"""


def test_a_hostile_guests_variables_are_saved_as_what_they_are(home, sandbox, tmp_path):
    with Sandbox("unsafe", allow_unsafe=True, project=home / "project") as s:
        s.execute(LIES)
        assert s.save(tmp_path / "s").kept == ("y", "z")
    loaded = sandbox.load(tmp_path / "s")
    assert (loaded.kept, sandbox.get("z")) == (("z",), 7)
    assert [one.name for one in loaded.missing][1::2] == ["x", "y"]
