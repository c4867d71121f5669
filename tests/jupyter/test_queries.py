"""Completion, inspection, is_complete, history."""

import time

import pytest

from support import reading


def complete(kernel, code, cursor=None):
    cursor = len(code) if cursor is None else cursor
    reply = kernel.ask("complete_request", {"code": code, "cursor_pos": cursor})
    reading.validate(reply)
    return reply["content"]


@pytest.mark.quick
def test_names_of_the_session_are_completed_with_their_span(safe):
    safe.run("apricot = 1")
    content = complete(safe, "print(apri + 1)", 10)
    assert content["matches"] == ["apricot"]
    assert (content["cursor_start"], content["cursor_end"]) == (6, 10)
    (kind,) = content["metadata"]["_jupyter_types_experimental"]
    assert kind["text"] == "apricot"


def test_positions_count_characters_and_not_bytes(safe):
    safe.run("größe = 1")
    content = complete(safe, "'🐍🐍'; grö")
    assert content["matches"] == ["größe"]
    assert content["cursor_start"] == 6


def test_completion_of_imports_offers_what_may_be_imported_and_imports_nothing(safe):
    assert complete(safe, "import stat")["matches"] == ["statistics"]
    assert complete(safe, "import soc")["matches"] == []
    assert complete(safe, "from gc import ")["matches"] == []
    assert complete(safe, "from os import env")["matches"] == []
    assert complete(safe, "from math import isc")["matches"] == ["isclose"]
    assert complete(safe, "from pathlib import Pos")["matches"] == []
    assert complete(safe, "from pathlib import PurePos")["matches"] == ["PurePosixPath"]


def test_completion_offers_no_name_that_would_be_refused(safe):
    safe.run("word = 'abc'")
    assert not [m for m in complete(safe, "word.__red")["matches"] if "__reduce" in m]
    assert complete(safe, "ev")["matches"] == []


def test_completion_runs_no_module_of_the_notebooks_folder(start, world):
    world.write("evil.py", "open('ran', 'w').close()")
    kernel = start("unsafe", "--allow-unsafe", world=world)
    complete(kernel, "from evil import ")
    complete(kernel, "import evi")
    assert not (world.work / "ran").exists()
    assert reading.result(kernel.run("import sys; 'evil' in sys.modules")[1]) == "False"


def test_a_dir_that_raises_costs_no_completion_and_no_kernel(safe):
    safe.run("class Bad:\n    def __dir__(self): raise RuntimeError\nbad = Bad()")
    assert isinstance(complete(safe, "bad.")["matches"], list)
    assert safe.run("1")[0]["status"] == "ok"


@pytest.mark.parametrize(
    "code",
    [
        "a" * 50_000 + ".",
        "a." * 50_000,
        "(" * 50_000,
        "[" * 50_000 + "a.",
        "f(" + "a," * 50_000,
        '"""' + "a\n" * 50_000 + "a.",
        " " * 50_000 + "a",
        "x = 1\n" * 50_000 + "a.b.",
    ],
    ids=lambda code: repr(code[:4] + code[-4:]),
)
def test_completion_and_inspection_of_long_text_take_no_time(safe, code):
    safe.run("1")
    started = time.monotonic()
    complete(safe, code)
    safe.ask("inspect_request", {"code": code, "cursor_pos": len(code), "detail_level": 0})
    assert time.monotonic() - started < 3


def test_completion_and_inspection_in_big_cells_are_as_in_small_ones(safe):
    safe.run("word = 'a'\napricot = {'stone': 1}\nimport json")
    for before in ("x = 1\n" * 2_000, "x = [" + "1, " * 2_000 + "\n", "y = [" + "word, " * 2_000):
        found = complete(safe, before + "word.upp + 1", len(before) + 8)
        assert [m.rpartition(".")[2] for m in found["matches"]] == ["upper"]
        assert found["cursor_end"] == len(before) + 8
        assert complete(safe, before + "apricot['")["matches"] == ["stone"]
        assert "indent=" in complete(safe, before + "json.dumps(word, ind")["matches"]
        asked = {"code": before + "json.dumps", "cursor_pos": len(before) + 7, "detail_level": 0}
        assert "Serialize" in safe.ask("inspect_request", asked)["content"]["data"]["text/plain"]


def test_completion_that_hangs_is_interrupted_and_costs_nothing(safe):
    safe.run("class Slow:\n    def __dir__(self):\n        print('go')\n        while True: pass")
    safe.run("slow = Slow()")
    mid = safe.send("complete_request", {"code": "slow.", "cursor_pos": 5})
    safe.until(lambda m: m["msg_type"] == "stream")
    safe.interrupt()
    assert safe.reply(mid)["content"]["matches"] == []
    safe.until_idle(mid)
    assert safe.run("slow")[0]["status"] == "ok"


def inspect(kernel, code, detail=0):
    content = {"code": code, "cursor_pos": len(code), "detail_level": detail}
    reply = kernel.ask("inspect_request", content)
    reading.validate(reply)
    return reply["content"]


@pytest.mark.quick
def test_inspection_shows_signature_and_docstring(safe):
    safe.run("def shout(word):\n    '''Say it loudly.'''\n    return word.upper()")
    content = inspect(safe, "shout")
    assert content["found"]
    text = reading.ANSI.sub("", content["data"]["text/plain"])
    assert "shout(word)" in text
    assert "Say it loudly." in text


def test_inspection_inside_a_call_is_about_the_function(safe):
    assert "iterable" in inspect(safe, "sorted(")["data"]["text/plain"]


def test_inspection_at_level_1_shows_the_source(safe):
    safe.run("def shout(word):\n    return word.upper()")
    text = reading.ANSI.sub("", inspect(safe, "shout", 1)["data"]["text/plain"])
    assert "return word.upper()" in text


def test_inspection_of_nothing_finds_nothing(safe):
    content = inspect(safe, "no_such_name")
    assert (content["found"], content["data"]) == (False, {})


@pytest.mark.parametrize(
    ("code", "status", "indent"),
    [
        ("x = 1", "complete", None),
        ("for x in y:", "incomplete", "    "),
        ("if a:\n    for x in y:", "incomplete", "        "),
        ("'''open", "incomplete", ""),
        ("x = = 1", "invalid", None),
        ("%time 1", "complete", None),
        ("await f()", "complete", None),
    ],
)
def test_is_complete_says_whether_a_cell_goes_on(safe, code, status, indent):
    content = safe.ask("is_complete_request", {"code": code})["content"]
    assert (content["status"], content.get("indent")) == (status, indent)


def history(kernel, **fields):
    content = {"output": False, "raw": True, "hist_access_type": "tail", "n": 100} | fields
    reply = kernel.ask("history_request", content)
    reading.validate(reply)
    return [tuple(entry) for entry in reply["content"]["history"]]


@pytest.mark.quick
def test_history_outlives_its_session_and_stays_on_the_host(start, world):
    first = start("safe", world=world)
    for code in ("a = 1", "b = 2", "c = 3"):
        first.run(code)
    assert [text for *_, text in history(first, n=2)] == ["b = 2", "c = 3"]
    assert not first.end()
    second = start("safe", world=world)
    second.run("d = 4")
    assert [text for *_, text in history(second)][-4:] == ["a = 1", "b = 2", "c = 3", "d = 4"]
    (file,) = world.home.rglob("history.sqlite")
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0


def test_history_keeps_what_was_typed_and_leaves_out_what_asked_not_to_be_kept(start):
    kernel = start("safe")
    kernel.run("%time 1")
    kernel.run("'unkept'", store_history=False)
    kernel.run("'silent'", silent=True)
    assert [text for *_, text in history(kernel)] == ["%time 1"]
    assert [text for *_, text in history(kernel, raw=False)] == [
        "get_ipython().run_line_magic('time', '1')\n"
    ]
    assert history(kernel, hist_access_type="range", session=0, start=1, stop=2) == [
        (0, 1, "%time 1")
    ]
    assert history(kernel, hist_access_type="search", pattern="*time*") == [(0, 1, "%time 1")]
    assert history(kernel, hist_access_type="search", pattern="nothing*") == []
