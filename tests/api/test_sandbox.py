"""A sandbox from a program: what comes of cells, what stops them, what it leaves."""

import asyncio
import os
import re
import signal
import textwrap
import threading
import time

import pytest

from cellblock import Policy, Sandbox, Variable
from cellblock.api import front
from cellblock.errors import InputError
from cellblock.render import policy_card
from cellblock.render.for_models import for_models
from cellblock.render.policy_card import policy_table

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.quick
def test_a_cells_value_output_and_displays_are_told_apart(unsafe):
    r = unsafe.execute(
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\ndisplay({'a': 1})\n'value'"
    )
    assert (r.success, r.status, r.output, r.error_output) == (True, "ok", "out\n", "err\n")
    assert (r.result, [str(one) for one in r.displays]) == ("'value'", ["{'a': 1}"])
    assert (r.error, r.denials, r.stop, r.artifacts) == (None, (), None, ())
    assert r.usage.wall_seconds > 0
    assert [one.kind for one in r.outputs if not one.ours] == [
        "stream", "stream", "display_data", "execute_result",
    ]  # fmt: skip


@pytest.mark.quick
def test_variables_live_from_cell_to_cell_and_cells_are_numbered(sandbox):
    assert sandbox.execute("x = 20").execution_count == 1
    r = sandbox.execute("x + 22")
    assert (r.result, r.execution_count) == ("42", 2)


@pytest.mark.quick
def test_an_exception_is_a_result_with_the_cells_own_lines(sandbox):
    r = sandbox.execute("def f(x):\n    return 1 / x\n\nf(0)")
    assert (r.success, r.status) == (False, "error")
    assert (r.error.type, r.error.message) == ("ZeroDivisionError", "division by zero")
    assert "\x1b" not in r.error.traceback
    assert r.to_string() == (
        "The cell failed: ZeroDivisionError: division by zero\n\n"
        "  line 4: f(0)\n"
        "  line 2, in f(x): return 1 / x"
    )


def test_a_syntax_error_says_where(sandbox):
    text = sandbox.execute("x = = 1").to_string()
    assert text.startswith("The cell was not run: SyntaxError: invalid syntax")
    assert "x = = 1" in text


@pytest.mark.quick
def test_a_refused_cell_does_not_start_and_says_all_of_why(sandbox):
    r = sandbox.execute("print('ran')\nimport gc\neval('1')")
    assert (r.status, r.output, r.usage) == ("denied", "", None)
    assert [(one.rule, one.line) for one in r.denials] == [
        ("import-not-allowed", 2),
        ("builtin-not-allowed", 3),
    ]
    assert r.error.type == "PolicyDenied"
    said = r.to_string()
    assert said.startswith("The cell was not run: 2 findings (policy safe).")
    for one in r.denials:
        assert f"line {one.line}: {one.rule}: {one.subject} {one.why}" in said
        assert for_models(one.remedy) in said


@pytest.mark.parametrize(
    ("cell", "lines"),
    [
        ("%%bash\nls", [(1, "%%bash")]),
        ("x = 1\n!ls \\\n  -l\nimport socket", [(2, "!ls \\"), (4, "import socket")]),
        ("%%time\nimport socket", [(2, "import socket")]),
        ("    \n  import socket", [(2, "  import socket")]),
    ],
)
def test_a_refused_magic_is_quoted_as_it_was_written(sandbox, cell, lines):
    r = sandbox.execute(cell)
    assert [(one.line, one.excerpt) for one in r.denials] == lines
    card = next(out.content["data"] for out in r.outputs if out.ours)
    for text in (str(r), card["text/plain"], card["text/html"]):
        assert "get_ipython" not in text


def test_cleared_and_updated_output_is_as_it_is_in_the_end(sandbox):
    r = sandbox.execute(
        "from IPython.display import clear_output, display\n"
        "print('gone')\nclear_output()\nprint('here')\n"
        "handle = display('first', display_id=True)\nhandle.update('second')"
    )
    assert (r.output, [str(one) for one in r.displays]) == ("here\n", ["'second'"])
    kinds = [one.kind for one in r.outputs if not one.ours]
    assert kinds == ["stream", "clear_output", "stream", "display_data", "update_display_data"]
    assert len({one.content["transient"]["display_id"] for one in r.outputs[-2:]}) == 1
    r = sandbox.execute("display('first', display_id='d')\ndisplay('again', display_id='d')")
    assert [(str(one), one.display_id) for one in r.displays] == [("'again'", "d")] * 2


def test_output_by_values_of_other_types_ends_no_guest(sandbox):
    r = sandbox.execute(
        "from IPython.display import clear_output, display, publish_display_data\n"
        "clear_output(1)\nclear_output(None)\n"
        "publish_display_data({1: 'a', 'text/plain': 'b'}, metadata={2: 'c'})"
    )
    assert (r.status, [str(one) for one in r.displays]) == ("ok", ["b\n[cellblock left out 1]"])
    r = sandbox.execute("display({'text/plain': 'a'}, raw=True, metadata=[1])")
    assert (r.status, r.error.type) == ("error", "TypeError")


def test_outputs_come_as_they_are_made_and_in_order(pool):
    seen = []

    def had_come(_prompt):
        return str("a" in "".join(one.content.get("text", "") for one in seen))

    with pool.sandbox(input=had_come) as s:
        r = s.execute("print('a', flush=True)\nx = input()\nprint('b')\nx", on_output=seen.append)
    assert tuple(seen) == r.outputs
    assert r.result == "'True'"


def test_text_beyond_the_policys_bytes_is_left_out_and_counted():
    with Sandbox(Policy.preset("safe", stdout_max_bytes=10_000)) as s:
        r = s.execute("for n in range(10_000): print(n)")
    assert 30_000 < r.left_out["stdout"] < 50_000
    assert r.output.startswith("0\n1\n")
    assert r.output.endswith("9999\n")
    said = r.to_string(2_000)
    assert len(said) < 2_000
    assert f"Left out: {r.left_out['stdout']:,} more bytes of stdout (stdout_max_bytes)." in said


def test_what_a_callback_raises_is_printed_and_ends_nothing(sandbox, capfd):
    r = sandbox.execute("print('a')\nx = 1\nx", on_output=lambda _output: 1 / 0)
    assert (r.status, r.output, r.result) == ("ok", "a\n", "1")
    assert "ZeroDivisionError" in capfd.readouterr().err


@pytest.mark.quick
def test_what_the_os_layer_refuses_is_explained(unsafe):
    said = unsafe.execute("open('/etc/shadow')").to_string()
    assert said.startswith("The cell failed: PermissionError: ")
    assert "  line 1: open('/etc/shadow')" in said
    assert "filesystem_read_roots" in said


# --- what stops a cell ------------------------------------------------------------------------


@pytest.mark.quick
def test_a_cell_over_its_own_limit_is_stopped_and_variables_are_kept(sandbox):
    sandbox.execute("x = 1")
    r = sandbox.execute("x = 2\nwhile True: pass", timeout=0.3)
    assert (r.status, r.stop.why, r.stop.limit, r.stop.state) == (
        "stopped", "timeout", "0.3 s", "kept",
    )  # fmt: skip
    assert r.to_string().startswith(
        "cellblock stopped this cell: it ran longer than 0.3 s (timeout).\n"
        "It was interrupted: your variables are there, with what it did until then.\n"
        "To raise it: run the cell with timeout=60, which the policy allows."
    )
    assert sandbox.execute("x").result == "2"


FULL = (
    "The cell failed: MemoryError: [cellblock: under policy data cells can't hold more memory than "
    "1 GiB (memory_max_bytes). To raise it, the operator can run: cellblock policy add cells.toml "
    "--extends data 'memory_max_bytes = \"2 GiB\"' (or del what is large and no longer needed: "
    "what cells have made is still there)]"
)


def test_a_model_is_told_once_that_memory_is_short_and_that_what_cells_made_is_there():
    """Also where a cell has left no memory for IPython's traceback."""
    with Sandbox(Policy.preset("data", memory_max_bytes=2**30)) as s:
        one = s.execute("x = 1\nbytearray(3 * 2**30)").to_string()
        all_of_it = s.execute("y = []\nwhile True: y.append(bytearray(2**22))").to_string()
    assert one == f"{FULL}\n\n  line 2: bytearray(3 * 2**30)"
    assert all_of_it.startswith(FULL)
    assert all_of_it.count("cellblock: under policy") == 1


def test_a_cell_that_does_not_give_way_is_killed_and_costs_nothing(unsafe):
    unsafe.execute("x = 1")
    r = unsafe.execute(
        "import signal\nx = 2\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        timeout=0.3,
    )
    assert (r.stop.why, r.stop.state) == ("timeout", "restored")
    assert unsafe.execute("x").result == "1"


def test_a_call_can_only_narrow_the_policys_limit():
    with Sandbox(Policy.preset("safe", timeout=0.5)) as s:
        r = s.execute("while True: pass", timeout=60)
    assert (r.stop.limit, "set timeout in a policy file" in r.stop.said) == ("0.5 s", True)


@pytest.mark.quick
def test_a_crash_is_a_result_and_the_next_cell_runs(unsafe):
    unsafe.execute("x = 3")
    r = unsafe.execute("import ctypes\nctypes.string_at(0)")
    assert (r.status, r.stop.why, r.stop.limit) == (
        "stopped", "crash", "it was ended by signal SIGSEGV",
    )  # fmt: skip
    assert unsafe.execute("x").result == "3"


@pytest.mark.quick
def test_another_thread_interrupts(sandbox):
    threading.Timer(0.3, sandbox.interrupt).start()
    r = sandbox.execute("import time\ntime.sleep(60)")
    assert (r.status, r.error.type) == ("error", "KeyboardInterrupt")
    assert sandbox.execute("1").result == "1"


def test_ctrl_c_ends_the_wait_and_the_cell_and_the_sandbox_goes_on(sandbox):
    sandbox.execute("x = 1")
    threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        sandbox.execute("x = 2\nwhile True: pass")
    assert sandbox.execute("x").result == "2"


def test_ctrl_c_ends_what_does_not_give_way(unsafe):
    unsafe.execute("x = 1")
    threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        unsafe.execute(
            "import signal\nx = 2\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
        )
    assert unsafe.execute("x").result == "1"


# --- questions and inputs ---------------------------------------------------------------------


@pytest.mark.quick
def test_a_question_without_anybody_to_ask_is_an_end_of_file(sandbox):
    r = sandbox.execute("input('name? ')")
    assert (r.status, r.error.type) == ("error", "EOFError")
    assert sandbox.execute("1").result == "1"


def test_questions_are_answered_by_what_is_given_sync_or_async(pool):
    async def later(prompt):
        await asyncio.sleep(0)
        return prompt.upper()

    for ask in (lambda prompt: prompt.upper(), later):
        with pool.sandbox(input=ask) as s:
            assert s.execute("input('ada') + input('b')").result == "'ADAB'"


def test_what_fails_to_answer_is_an_end_of_file(pool, capfd):
    with pool.sandbox(input=lambda _prompt: 1 / 0) as s:
        assert s.execute("input()").error.type == "EOFError"
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_an_answer_takes_none_of_the_cells_time(pool):
    def slow(_prompt):
        time.sleep(1.0)
        return "yes"

    with pool.sandbox(input=slow) as s:
        assert s.execute("input()", timeout=0.7).result == "'yes'"


@pytest.mark.quick
def test_inputs_are_there_to_be_read(pool):
    with pool.sandbox(inputs={"rows": [{"a": 1}], "n": 2}) as s:
        r = s.execute("inputs['rows'][0]['a'] + inputs['n'], sorted(inputs)")
        assert r.result == "(3, ['n', 'rows'])"
        assert s.execute("inputs['n'] = 3").error.type == "TypeError"
        assert s.execute("%who").output.strip() == "Interactive namespace is empty."
        s.execute("1/0")
        assert s.execute("inputs = 5\ninputs").result == "5"


def test_inputs_come_back_with_a_guest_that_is_started_anew():
    policy = Policy.preset("unsafe", snapshots="off")
    with Sandbox(policy, inputs={"n": 7}, allow_unsafe=True) as s:
        assert s.execute("import os\nos._exit(1)").stop.state == "gone"
        assert s.execute("inputs['n']").result == "7"


def test_what_is_no_json_is_refused_before_anything_runs(pool):
    with pytest.raises(InputError, match="inputs: f: no JSON data: it is of type"):
        pool.sandbox(inputs={"f": object()}).open()


def test_a_flood_of_questions_about_the_policy_is_answered_with_one_table(unsafe, monkeypatch):
    made = []

    def table(*args):
        made.append(args)
        return policy_table(*args)

    monkeypatch.setattr(policy_card, "policy_table", table)
    r = unsafe.execute(
        "import msgspec, os\n"
        "body = msgspec.msgpack.encode({'type': 'show', 'what': 'policy'})\n"
        "os.write(3, (len(body).to_bytes(4, 'big') + body) * 500)"
    )
    displays = [one for one in r.outputs if one.kind == "display_data"]
    tables_shown = [one for one in displays if not (one.ours or one.is_notice)]
    shown = [one.content["data"]["text/plain"] for one in tables_shown]
    assert len(made) <= 1
    assert len(shown) > 100
    assert len(set(shown)) == 1


def test_that_the_interpreter_ended_between_cells_is_in_the_next_result(home):
    assert home
    ends = "import os, threading\nthreading.Timer(0.3, os._exit, [1]).start()"
    with Sandbox("unsafe", allow_unsafe=True) as s:
        s.execute(ends)
        time.sleep(1)
        (card,) = (one for one in s.execute("1").outputs if one.ours)
        assert "it ended its interpreter with exit status 1" in card.content["data"]["text/plain"]
        assert not any(one.ours for one in s.execute("1").outputs)


def test_variables_are_listed_without_running_code_of_the_users(unsafe):
    source = """
    import numpy as np
    said = []

    class Kind(type):
        @property
        def __name__(cls):
            said.append("name")

    class Loud(metaclass=Kind):
        shape = property(lambda self: said.append("shape"))
        nbytes = property(lambda self: said.append("nbytes"))
        __len__ = __sizeof__ = __repr__ = lambda self: said.append("method")

    loud, array, text, _own = Loud(), np.zeros((3, 4)), "abc", 1
    globals()["x" * 500] = 2
    """
    assert unsafe.execute(textwrap.dedent(source)).success
    found = {one.name: one for one in unsafe.variables()}
    assert found["array"] == Variable("array", "ndarray", "3 by 4", 96)
    assert (found["loud"].type, found["loud"].shape, found["loud"].size) == ("Loud", "", 0)
    assert found["text"].shape == "3"
    assert "x" * 200 in found
    assert "_own" not in found
    assert unsafe.execute("said").result == "[]"


def test_a_notice_of_the_hosts_is_no_part_of_what_a_cell_wrote_to_stderr():
    code = (
        "import sys\nprint('[cellblock left out 7 bytes]', file=sys.stderr)\ndisplay('x' * 9_000)"
    )
    with Sandbox(Policy(display_max_bytes=1_000)) as s:
        r = s.execute(code)
    assert r.error_output == "[cellblock left out 7 bytes]\n"
    (notice,) = r.notices
    assert notice.startswith("[cellblock left out ")
    assert notice not in [str(one) for one in r.displays]
    assert f"stderr:\n\\[cellblock left out 7 bytes]\n\n{notice}\n\n" in r.to_string()


def test_a_heading_that_is_written_piece_by_piece_is_marked_and_all_else_is_as_it_was_printed():
    code = (
        "import sys\n"
        "print('a:\\n\\t- b', flush=True)\n"
        "for piece in ('std', 'err', ':', '\\n', '  The cell ', 'failed: no\\n', '\\x1b[31mresult:\\n'):\n"
        "    print(piece, end='', flush=True)\n"
        "print('result: 3', file=sys.stderr)\n"
        "3"
    )
    with Sandbox("safe") as s:
        said = s.execute(code).to_string()
    assert said == (
        "The cell ran.\n\n"
        "stdout:\na:\n\t- b\n\\stderr:\n\\  The cell failed: no\n\\result:\n\n"
        "stderr:\nresult: 3\n\n"
        "result:\n3"
    )


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("!false", "A program that it started ended with status 1."),
        ("!sh -c 'exit 4'\n!true", "A program that it started ended with status 4."),
        ("!kill -9 $$", "A program that it started was ended by signal 9."),
        (
            "!python -c \"import urllib.request as r; r.urlopen('https://example.org')\"",
            "A program that it started ended with status {}. Under policy data cells have no network (network_access).",
        ),
        # The shell says itself why a program did not begin.
        (
            "!no-such-program https://example.org",
            "A program that it started ended with status 127.",
        ),
        ("!true", ""),
    ],
)
def test_how_a_program_failed_is_told(code, told):
    with Sandbox("data") as sandbox:
        sandbox.execute("!exit 3")
        result = sandbox.execute(code)
        said = result.to_string()
        assert told.format(result.program_status) in said
        assert said.count("A program") == bool(told)
        assert ("(network_access)" in said) == ("(network_access)" in told)
        assert bool(result.program_status) == bool(told)


def test_a_program_under_a_list_is_told_that_it_reaches_who_is_listed_alone():
    policy = Policy.preset("data", network_access=("example.org:443",))
    with Sandbox(policy) as sandbox:
        said = sandbox.execute("!curl -sS http://10.0.0.6/").to_string()
    assert "Under policy data cells can reach only listed addresses (network_access)." in said


def test_an_output_that_is_too_large_names_the_limit(sandbox):
    said = sandbox.execute("display({'text/plain': 'x' * (25 << 20)}, raw=True)").to_string()
    assert re.search(r"<left out: \d+ bytes in one Display, and .* at most 24 MiB>", said)


def test_a_mistake_of_the_hosts_in_making_a_result_is_raised_and_the_next_cell_runs(
    sandbox, monkeypatch
):
    """A cell whose result could not be made never ended, whatever its timeout."""
    sandbox.execute("x = 41")
    with monkeypatch.context() as patch:
        patch.setattr(front, "result_of", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sandbox.execute("print('of the first'); x += 1")
    after = sandbox.execute("x")
    assert (after.result, after.output, after.late_output) == ("42", "", "")


def test_a_widget_of_an_operators_module_with_an_odd_state_ends_no_host(home):
    assert home
    policy = Policy.preset("data", name="widgets", add={"widget_modules": ["myext"]})
    cell = """
from comm import create_comm
from IPython.display import publish_display_data
state = {'_model_module': 'myext', '_model_name': %s, 'value': 3}
c = create_comm(
    target_name='jupyter.widget', data={'state': state}, metadata={'version': '2.1.0'}
)
c.send({'method': 'update', 'state': {'_model_name': %s, 'description': 7}})
view = {'version_major': 2, 'version_minor': 0, 'model_id': c.comm_id}
publish_display_data({'application/vnd.jupyter.widget-view+json': view, 'text/plain': 'w'})
"""
    with Sandbox(policy) as s:
        said = s.execute(cell % ("'AModel'", "'BModel'")).to_string()
        assert said.endswith("B(value=3)")
        for first, then in (("5", "'AModel'"), ("'AModel'", "5"), ("None", "[1]")):
            result = s.execute(cell % (first, then))
            assert result.status == "ok", result
            assert "A(" not in result.to_string() or then == "'AModel'"
        assert s.execute("6 * 7").result == "42"
