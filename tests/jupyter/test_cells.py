"""What a cell prints, shows, returns and raises."""

import pytest

from support import reading
from support.reading import run


def fail(kernel, code):
    reply, published = kernel.run(code)
    assert reply["status"] == "error", reply
    return reading.traceback(published)


def test_how_a_magic_is_used_is_a_line_on_stderr_and_no_traceback(safe):
    reply, published = safe.run("%undo x")
    said = "UsageError: %undo takes a number of cells, not 'x'"
    assert (reply["status"], f"{reply['ename']}: {reply['evalue']}") == ("error", said)
    assert reading.stream(published, "stderr") == f"{said}\n"
    assert not reading.of(published, "error")


NOTEBOOK = """
import sys, rich.console, tqdm.auto, pandas.io.formats.console as pandas
from tqdm import notebook
shell = get_ipython()
loaded = {name.partition(".")[0] for name in sys.modules} & {"zmq", "tornado", "jupyter_client"}
found = rich.console._is_jupyter(), pandas.in_ipython_frontend()
[*found, issubclass(tqdm.auto.tqdm, notebook.tqdm), "IPKernelApp" in shell.config, loaded]
"""


def test_libraries_find_a_notebook_and_no_guest_has_jupyters(unsafe):
    assert reading.result(run(unsafe, NOTEBOOK)) == "[True, True, True, True, set()]"


# --- output -----------------------------------------------------------------------------------


@pytest.mark.quick
def test_prints_arrive_whole_and_in_order(safe):
    published = run(safe, "for i in range(20_000): print(i)")
    assert reading.stream(published) == "".join(f"{i}\n" for i in range(20_000))


def test_stdout_and_stderr_keep_their_order(unsafe):
    code = "import sys\nfor i in range(3):\n    print('o', i)\n    print('e', i, file=sys.stderr)"
    texts = [(c["name"], c["text"]) for c in reading.of(run(unsafe, code), "stream")]
    wanted = [(n, f"{n[3]} {i}\n") for i in range(3) for n in ("stdout", "stderr")]
    assert texts == [(name, text) for name, text in wanted]


def test_what_c_code_and_children_write_is_shown(unsafe):
    code = "import os\nos.write(1, b'raw\\n')\nos.write(2, b'raw err\\n')\nNone"
    published = run(unsafe, code)
    assert reading.stream(published) == "raw\n"
    assert reading.stream(published, "stderr") == "raw err\n"


def test_rich_representations_travel_together(safe):
    code = (
        "class Both:\n"
        "    def _repr_html_(self): return '<b>rich</b>'\n"
        "    def __repr__(self): return 'plain'\n"
        "Both()"
    )
    (shown,) = reading.of(run(safe, code), "execute_result")
    assert shown["data"] == {"text/html": "<b>rich</b>", "text/plain": "plain"}


def test_output_of_a_thread_is_shown_under_its_cell(unsafe):
    code = (
        "import threading\n"
        "t = threading.Thread(target=lambda: print('from a thread'))\n"
        "t.start(); t.join()"
    )
    assert reading.stream(run(unsafe, code)) == "from a thread\n"


def test_what_a_task_shows_belongs_to_the_cell_that_started_it(unsafe):
    code = (
        "import asyncio\n"
        "async def show():\n"
        "    await asyncio.sleep(0.05)\n"
        "    print('late'); display('later')\n"
        "task = asyncio.create_task(show())"
    )
    mids = [unsafe.execute_send(code), unsafe.execute_send("await task; print('own')")]
    for mid in mids:
        unsafe.reply(mid)
    unsafe.until_idle(mids[1])
    late, own = ([m for _, m in unsafe.log if m["parent_header"].get("msg_id") == i] for i in mids)
    assert (reading.stream(late), reading.stream(own)) == ("late\n", "own\n")
    assert [shown["data"]["text/plain"] for shown in reading.of(late, "display_data")] == [
        "'later'"
    ]


# --- results ----------------------------------------------------------------------------------


def test_underscores_and_out_hold_earlier_results(safe):
    first = safe.run("10")[0]["execution_count"]
    run(safe, "20")
    assert reading.result(run(safe, "(_, __)")) == "(20, 10)"
    assert reading.result(run(safe, f"Out[{first}]")) == "10"
    assert reading.result(run(safe, f"_{first}")) == "10"
    assert reading.result(run(safe, f"In[{first}]")) == "'10'"


def test_a_semicolon_hides_the_result(safe):
    assert reading.result(run(safe, "1 + 1;")) is None


def test_counts_rise_by_one_and_only_when_stored(either):
    count = either.run("1")[0]["execution_count"]
    assert either.run("1", store_history=False)[0]["execution_count"] == count
    assert either.run("1", silent=True)[0]["execution_count"] == count
    assert either.run("1")[0]["execution_count"] == count + 1


def test_a_silent_run_has_no_echo_no_result_and_no_error(safe):
    published = run(safe, "1 + 1", silent=True)
    assert [m["msg_type"] for m in published] == ["status", "status"]
    reply, published = safe.run("1/0", silent=True)
    assert reply["ename"] == "ZeroDivisionError"
    assert "execute_input" not in reading.kinds(published)


# --- errors -----------------------------------------------------------------------------------

ERROR = """def f(n):
    return 1 / n

x = 1
f(0)"""


@pytest.mark.quick
def test_a_traceback_points_at_the_users_lines_and_shows_no_frame_of_ours(either):
    text = fail(either, ERROR)
    assert "ZeroDivisionError: division by zero" in text
    assert "----> 5 f(0)" in text
    assert "----> 2     return 1 / n" in text
    assert text.count("Cell In[") == 2
    assert "cellblock" not in text


def test_a_syntax_error_shows_the_place(safe):
    text = fail(safe, "x = 1\ny = = 2")
    assert "line 2" in text or "Cell In" in text
    assert "y = = 2" in text
    assert "SyntaxError: invalid syntax" in text
    assert "cellblock" not in text


def test_lines_are_right_behind_a_cell_magic(safe):
    text = fail(safe, "%%time\nx = 1\n\n1/0")
    assert "ZeroDivisionError" in text
    assert "cellblock" not in text


def test_an_exception_whose_message_raises_is_still_reported(safe):
    code = "class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E"
    reply, published = safe.run(code)
    assert reply["ename"] == "E"
    assert reading.of(published, "error")
    assert safe.run("1")[0]["status"] == "ok"


def test_system_exit_ends_the_cell_and_not_the_kernel(safe):
    reply, _ = safe.run("kept = 1\nraise SystemExit(3)")
    assert (reply["status"], reply["ename"], reply["evalue"]) == ("error", "SystemExit", "3")
    assert reading.result(run(safe, "kept")) == "1"


def test_deep_recursion_is_an_error_and_not_the_end(safe):
    assert "RecursionError" in fail(safe, "def f(): return f()\nf()")
    assert reading.result(run(safe, "1")) == "1"


# --- await ------------------------------------------------------------------------------------


@pytest.mark.quick
def test_top_level_await_returns_its_value(safe):
    code = "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 7\nawait f()"
    assert reading.result(run(safe, code)) == "7"


def test_an_error_in_an_awaiting_cell_points_at_its_line(safe):
    text = fail(safe, "import asyncio\nawait asyncio.sleep(0)\n1/0")
    assert "----> 3 1/0" in text
    assert "cellblock" not in text


def test_a_cell_can_not_close_the_loop_under_the_cells_to_come(safe):
    reply, _ = safe.run("import asyncio\nasyncio.get_running_loop().close()")
    assert reply["evalue"] == "Cannot close a running event loop"
    reply, published = safe.run("await asyncio.sleep(0)\n'goes on'")
    assert reading.result(published) == "'goes on'"


@pytest.mark.parametrize("method", ["_repr_html_", "_repr_mimebundle_"])
def test_a_representation_that_raises_leaves_the_others(safe, method):
    reply, published = safe.run(f"class A:\n    def {method}(self, *a, **k): 1 / 0\nA()")
    assert (reply["status"], reply["ename"]) == ("error", "ZeroDivisionError")  # as in ipykernel
    assert [error["ename"] for error in reading.of(published, "error")] == ["ZeroDivisionError"]
    assert "A at 0x" in reading.result(published)


def test_a_representation_that_raises_is_an_error_of_its_own(safe):
    assert "ZeroDivisionError" in str(safe.run("class A:\n    def __repr__(self): 1 / 0\nA()"))
    assert "Exceeds the limit" in str(safe.run("10**5000"))


@pytest.mark.parametrize(
    "grant",
    [
        "network_access = true",
        'network_access = ["localhost:9"]',
        "subprocess_execution = true",
        'filesystem_write_roots = ["{scratch}", "{project}"]',
        'memory_max_bytes = "none"',
        'snapshots = "off"',
    ],
)
def test_mode_safe_runs_cells_whatever_else_the_policy_grants(start, world, grant):
    kernel = start(world.policy(f'extends = "safe"\n{grant}\n'))
    for _ in range(2):
        reply, published = kernel.run("import statistics\nstatistics.mean([1, 3])")
        assert (reply["status"], reading.result(published)) == ("ok", "2")
