"""What IPython's users and libraries do to a shell works as under ipykernel: it is the same code.

Each right value was seen under ipykernel.
"""

import pytest

from support import reading

#: A name, cells that prepare, and the last one with its result.
RIGHT = {
    "traits": ([], 'get_ipython().has_trait("kernel")', "True"),
    "the class by name": (
        [],
        "type(get_ipython()).__module__, type(get_ipython()).__name__",
        "('ipykernel.zmqshell', 'ZMQInteractiveShell')",
    ),
    "modules that libraries look for": (
        ["import sys"],
        "[name in sys.modules for name in ('ipykernel', 'ipykernel.zmqshell')]",
        "[True, True]",
    ),
    "every module has a spec": (
        ["import sys"],
        "[n for n, m in sys.modules.items() if n.startswith('ipy') and m.__spec__ is None]",
        "[]",
    ),
    "statements are compiled one by one": (["a = 257\nb = 257"], "a is b", "False"),
    "prompts that were pasted": (["In [1]: pasted = 5\nIn [2]: pasted + 1"], "pasted", "5"),
    "the id of a cell whose front end sent none": (
        ["1"],
        "get_ipython().last_execution_result.info.cell_id is None",
        "True",
    ),
    "the last result": (["6 * 7"], "get_ipython().last_execution_result.result", "42"),
    "the last failure": (
        ["1/0"],
        "get_ipython().last_execution_succeeded, get_ipython().last_execution_result.success",
        "(False, False)",
    ),
    "transformers of lines": (
        [
            (
                "shell = get_ipython()\n"
                "shell.input_transformers_cleanup.append("
                "lambda lines: [line.replace('@@', '1 + ') for line in lines])"
            ),
            "seen = (\n@@41)",
            "del shell.input_transformers_cleanup[-1]",
        ],
        "seen",
        "42",
    ),
    "transformers of trees": (
        [
            (
                "import ast\n"
                "class Double(ast.NodeTransformer):\n"
                "    def visit_Constant(self, node):\n"
                "        return ast.Constant(node.value * 2)\n"
                "get_ipython().ast_transformers.append(Double())"
            ),
            "doubled = 21",
            "get_ipython().ast_transformers.clear()",
        ],
        "doubled",
        "42",
    ),
    "callbacks before and after": (
        [
            (
                "calls = []\n"
                "def before(info): calls.append((info.raw_cell, info.store_history))\n"
                "def after(result): calls.append((result.success, result.result))\n"
                "events = get_ipython().events\n"
                "events.register('pre_run_cell', before); events.register('post_run_cell', after)"
            ),
            "6 * 7",
            "events.unregister('pre_run_cell', before); events.unregister('post_run_cell', after)",
        ],
        "calls[1:3]",
        "[('6 * 7', True), (True, 42)]",
    ),
    "isinstance": (
        ["from ipykernel.zmqshell import ZMQInteractiveShell"],
        "isinstance(get_ipython(), ZMQInteractiveShell)",
        "True",
    ),
    "what is displayed by": (
        ["from ipykernel.zmqshell import ZMQDisplayPublisher, ZMQShellDisplayHook"],
        (
            "shell = get_ipython()\n"
            "type(shell.display_pub) is ZMQDisplayPublisher, type(shell.displayhook).__name__"
        ),
        "(True, 'ZMQShellDisplayHook')",
    ),
    "builtins of the site": ([], "license", "Type license() to see the full license text"),
    "streams": (
        ["import sys\nfrom ipykernel.iostream import OutStream"],
        "isinstance(sys.stdout, OutStream), isinstance(sys.stderr, OutStream)",
        "(True, True)",
    ),
    "the application": (
        ["from ipykernel.kernelapp import IPKernelApp"],
        "IPKernelApp.initialized(), IPKernelApp.instance().shell is get_ipython()",
        "(True, True)",
    ),
    "the application of traitlets": (
        ["from traitlets.config import Application"],
        "Application.instance().kernel is get_ipython().kernel",
        "True",
    ),
    "a list of magics": (
        [],
        "type(get_ipython().run_line_magic('lsmagic', '')).__name__",
        "'str'",
    ),
    "variables of a terminal": (["import os"], "os.environ['TERM']", "'xterm-color'"),
    "what a stream says of itself": (
        ["import sys"],
        "sys.stdout.encoding, sys.stdout.name, sys.stderr.name",
        "('UTF-8', 'stdout', 'stderr')",
    ),
    "the loop of a plain cell runs": (
        ["import asyncio"],
        "asyncio.get_event_loop().is_running()",
        "True",
    ),
    "a loop of the cell's own is one of the same class": (
        ["import asyncio"],
        "type(asyncio.new_event_loop()) is type(asyncio.get_event_loop())",
        "True",
    ),
    "hooks of displays": (
        [
            (
                "passed = []\n"
                "def hook(message):\n"
                "    passed.append((message['header']['msg_type'], message['content']['data']))\n"
                "get_ipython().display_pub.register_hook(hook)\n"
                "display(5)\n"
                "get_ipython().display_pub.unregister_hook(hook)"
            )
        ],
        "passed, get_ipython().display_pub.unregister_hook(hook)",
        "([('display_data', {'text/plain': '5'})], False)",
    ),
    "cells that a pattern fits": (
        ["searched = 1", "searched = 2", "searched = 1"],
        (
            "history = get_ipython().history_manager\n"
            "found = history.search('searched = *', unique=True), history.search('*ed = 2', n=1)\n"
            "[[cell[2] for cell in cells] for cells in found]"
        ),
        "[['searched = 2', 'searched = 1'], ['searched = 2']]",
    ),
    "the last cells": (
        ["before = 1", "last = 2"],
        "[cell[2] for cell in get_ipython().history_manager.get_tail(2)]",
        "['before = 1', 'last = 2']",
    ),
    "the debugger is IPython's": (
        ["import pdb"],
        "pdb.Pdb.__name__",
        "'InterruptiblePdb'",
    ),
}


@pytest.fixture(scope="module")
def data(start_shared):
    return start_shared("data")


@pytest.mark.parametrize("name", RIGHT)
def test_a_cell_gives_what_it_gives_under_ipykernel(data, name):
    cells, last, right = RIGHT[name]
    for cell in cells:
        data.run(cell)
    reply, published = data.run(last)
    assert reading.result(published) == right, reply


def test_no_module_of_ipykernel_is_executed_before_somebody_asks(start):
    kernel = start("data")
    kernel.run(
        "import inspect, sys; import ipykernel; inspect.getmodule(inspect); ipykernel.__version__"
    )
    asked = "'zmq' in sys.modules, 'tornado' in sys.modules"
    assert reading.result(kernel.run(asked)[1]) == "(False, False)"
    kernel.run("import ipykernel.zmqshell; ipykernel.zmqshell.ZMQInteractiveShell")
    assert reading.result(kernel.run(asked)[1]) == "(True, True)"


def test_errors_of_the_whole_cell_show_no_frame_of_ours(data):
    for cell, said in (
        ("return 5", "SyntaxError: 'return' outside function"),
        ("await 5", "object int can't be used in 'await' expression"),
    ):
        text = reading.traceback(data.run(cell)[1])
        assert said in text
        assert "cellblock" not in text
        assert "codeop" not in text
        assert "asyncio" not in text


def test_sys_exit_says_what_it_was_in_a_line(data):
    reply, published = data.run("import sys; sys.exit(1)")
    assert (reply["ename"], reply["evalue"]) == ("SystemExit", "1")
    assert reading.traceback(published).splitlines()[0].startswith("An exception has occurred")
    assert "To exit: use 'exit'" in reading.stream(published, "stderr")


def test_an_error_that_a_cells_own_handler_shows_is_shown_once(data):
    data.run(
        "get_ipython().set_custom_exc((ZeroDivisionError,), "
        "lambda self, kind, error, tb, tb_offset=None: print('mine:', error))"
    )
    reply, published = data.run("1/0")
    assert reply["ename"] == "ZeroDivisionError"
    assert reading.stream(published) == "mine: division by zero\n"
    assert not [message for message in published if message["msg_type"] == "error"]
    data.run("get_ipython().set_custom_exc((), None)")


def test_an_error_is_shown_while_a_cells_output_is_captured(data):
    _, published = data.run("%%capture captured\nprint('kept')\n1/0")
    (error,) = reading.of(published, "error")
    assert error["ename"] == "ZeroDivisionError"
    assert reading.result(data.run("captured.stdout")[1]) == "'kept\\n'"


def test_the_debugger_is_ipythons_whichever_is_imported_first(start):
    imports = "from IPython.core.debugger import Pdb; import pdb; pdb.Pdb is Pdb, Pdb.__name__"
    assert reading.result(start("data").run(imports)[1]) == "(True, 'InterruptiblePdb')"


def test_values_of_classes_that_derive_from_builtin_ones_are_shown_as_those(data):
    data.run("class Text(str): pass\nimport numpy")
    _, published = data.run(
        "display({'text/plain': Text('plain'),"
        " 'application/json': {'text': Text('t'), 'number': numpy.int64(3)}}, raw=True)"
    )
    (shown,) = reading.of(published, "display_data")
    assert shown["data"] == {"text/plain": "plain", "application/json": {"text": "t", "number": 3}}
    reply, _ = data.run(
        "class Failure(Exception):\n  __str__ = lambda _: Text('why')\nraise Failure"
    )
    assert (reply["ename"], reply["evalue"]) == ("Failure", "why")
    reply, _ = data.run("from IPython.core import page\npage.page(Text('paged'))")
    assert reply["payload"][0]["data"] == {"text/plain": "paged"}


def test_a_number_that_no_message_can_carry_is_shown_as_text(data):
    _, published = data.run("display({'application/json': {'big': 2**70}}, raw=True)")
    assert str(2**70) in reading.of(published, "display_data")[0]["data"]["application/json"]


def test_rerun_finds_a_cell_by_a_word_of_it(data):
    data.run("print('the word is', 'aardvark')")
    assert "the word is aardvark" in reading.stream(data.run("%rerun -g aard")[1])


def test_a_hook_of_a_stream_may_keep_what_is_printed(data):
    _, published = data.run(
        "import sys; kept = []\n"
        "def hook(message): kept.append(message['content']['text'])\n"
        "sys.stdout.register_hook(hook); print('hidden'); sys.stdout.unregister_hook(hook)\n"
        "print('shown')"
    )
    assert reading.stream(published) == "shown\n"
    assert reading.result(data.run("''.join(kept)")[1]) == "'hidden\\n'"


def test_a_line_that_is_printed_to_the_original_stdout_is_shown(data):
    _, published = data.run("import sys; print('original', file=sys.__stdout__)")
    assert reading.stream(published) == "original\n"


def test_a_warning_that_was_shown_once_is_not_shown_again_after_a_copy_was_made(start):
    kernel = start("data")
    kernel.run("import warnings; shown = {}")
    warn = "warnings.warn_explicit('careful', UserWarning, 'lib.py', 1, registry=shown)"
    assert "careful" in reading.stream(kernel.run(warn)[1], "stderr")
    kernel.run("%checkpoint here")
    assert reading.stream(kernel.run(warn)[1], "stderr") == ""


def test_autoreload_runs_what_was_changed(data):
    data.run("%load_ext autoreload\n%autoreload 2")
    data.run("%%writefile reloaded.py\ndef f(): return 1\n")
    assert reading.result(data.run("import reloaded, os; reloaded.f()")[1]) == "1"
    data.run("%%writefile reloaded.py\ndef f(): return 22222\n")
    data.run("os.utime('reloaded.py', (2**31, 2**31))")
    assert reading.result(data.run("reloaded.f()")[1]) == "22222"


def test_magics_of_ipykernels(data):
    data.run("%%writefile shown.py\nx = 1\n")
    reply, _ = data.run("%less shown.py")
    assert "x = " in reply["payload"][0]["data"]["text/plain"]
    assert "Autosave disabled" in reading.stream(data.run("%autosave 0")[1])


@pytest.mark.parametrize("magic", ["connect_info", "qtconsole"])
def test_magics_that_need_the_kernels_key_say_so_and_the_cell_goes_on(data, magic):
    reply, published = data.run(f"%{magic}\nprint('next')")
    assert reply["status"] == "ok"
    assert reading.stream(published) == "next\n"
    said = reading.stream(published, "stderr")
    assert said.startswith(f"%{magic} does nothing here: cells can't read")
    assert said.count("\n") == 1


def test_gui_says_that_no_window_opens(data):
    _, published = data.run("%gui qt")
    assert "cells have no display" in reading.stream(published, "stderr")
    for quiet in ("%gui", "%gui asyncio", "%matplotlib inline"):
        assert reading.of(data.run(quiet)[1], "stream") == []


SLIDER = "import asyncio, ipywidgets\nslider = ipywidgets.IntSlider()\nslider"
AWAITS = """
answer = asyncio.get_running_loop().create_future()
slider.observe(lambda change: answer.set_result(change.new), "value")
print("waits")
print("got", await asyncio.wait_for(answer, 60))
"""


def move(kernel, published, value):
    (shown,) = reading.of(published, "execute_result")
    slider = shown["data"]["application/vnd.jupyter.widget-view+json"]["model_id"]
    data = {"method": "update", "state": {"value": value}, "buffer_paths": []}
    return kernel.send("comm_msg", {"comm_id": slider, "data": data})


def test_widgets_go_on_after_ipykernel_took_comms_for_itself(data):
    data.run("import ipykernel.ipkernel; ipykernel.ipkernel.IPythonKernel")
    moved = move(data, data.run(SLIDER)[1], 7)
    data.until_idle(moved)
    assert reading.result(data.run("slider.value")[1]) == "7"


def test_a_cell_that_awaits_hears_what_a_widget_is_told_meanwhile(data):
    published = data.run(SLIDER)[1]
    cell = data.execute_send(AWAITS)
    data.until(lambda message: message["msg_type"] == "stream", cell)
    move(data, published, 42)
    assert data.reply(cell)["content"]["status"] == "ok"
    assert "got 42" in reading.stream(data.until_idle(cell))
    assert reading.result(data.run("slider.value")[1]) == "42"


def test_what_a_widget_is_told_reaches_a_cell_that_awaits_before_the_cells_behind_it(data):
    published = data.run(SLIDER)[1]
    cell = data.execute_send(AWAITS)
    data.until(lambda message: message["msg_type"] == "stream", cell)
    behind = data.execute_send("print(slider.value)")
    move(data, published, 42)
    assert data.reply(cell)["content"]["status"] == "ok"
    assert reading.stream(data.until_idle(behind)) == "42\n"


def test_what_a_task_prints_is_its_cells_though_the_next_cell_was_sent_before_it_began(data):
    data.run("import asyncio\nasync def task():\n    print('of the task')\n")
    first = data.execute_send("kept = asyncio.get_event_loop().create_task(task())")
    second = data.execute_send("await asyncio.sleep(0.1)")
    printed = data.recv("iopub")
    while printed["msg_type"] != "stream":
        printed = data.recv("iopub")
    assert printed["parent_header"]["msg_id"] == first
    data.until_idle(second)
