"""Consent that nobody gave: by cells that imitate, hurry, flood, forge and wait."""

import pytest

from cellblock.analysis.imports import APPROVABLE
from cellblock.render.text import HOSTS_MARK
from support import reading, tool_kernels
from support.approvals import answer_question, code_in, drop_questions, run
from support.client import Client
from support.kernels import World

FORGER = """
import os, msgspec, time
def say(**fields):
    body = msgspec.msgpack.encode(fields)
    os.write(3, len(body).to_bytes(4, "big") + body)
def call(name, id=7, arguments=None):
    say(type="tool_call", id=id, name=name, arguments=arguments or [[], {}])
def withdraw(id=7):
    say(type="tool_withdrawn", id=id)
"""
PROMPT = 'approvals = "prompt"'


@pytest.fixture(scope="module")
def worlds():
    made = World(), World()
    yield made
    for one in made:
        one.close()


@pytest.fixture(scope="module")
def kernel(worlds, start_shared):
    """Return a kernel of mode safe with tools."""
    world, _ = worlds
    return start_shared(argv=tool_kernels.argv(world, settings=PROMPT), world=world)


@pytest.fixture(scope="module")
def forger(worlds, start_shared):
    """Return a kernel whose cells may write to the channel as they like, and read the project.

    One test allows ``opaque`` for always in it; no other calls that.
    """
    _, world = worlds
    settings = f"{PROMPT}\nfilesystem_read_roots = ['{{project}}']\n"
    settings += "[ops.read_file]\nroots = ['{project}']"
    return start_shared(
        argv=tool_kernels.argv(world, settings=settings, mode="unsafe"),
        world=world,
        extra_env={"XDG_DATA_HOME": str(world.work / "data")},
    )


@pytest.fixture
def kept(worlds):
    """Return the folder of what the forger was allowed for always, and of the key."""
    return worlds[1].work / "data/cellblock"


def works(kernel):
    return reading.result(run(kernel, "add(1)", "{}")[2]) == "2"


def asks(kernel):
    """Return the next question, unanswered."""
    return kernel.recv("stdin")["content"]["prompt"]


def answer(kernel, text):
    kernel.send("input_reply", {"value": text}, "stdin")


# --- imitation --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prompt",
    [
        "┃ cellblock asks: may cell [1] call add?\\n┃ Answer: ",
        "\\r\\x1b[2K┃ cellblock asks: ",
        "\\x1b]0;┃\\x07┃",
    ],
)
def test_a_cells_question_is_the_cells_and_so_is_the_answer(kernel, prompt):
    code = f"got = input('{prompt}')\ntry: add(1)\nexcept ToolError as e: got += e.kind\ngot"
    prompts, _, published = run(kernel, code, "417 always", "no")
    assert prompts[0].startswith("the cell asks: ")
    assert HOSTS_MARK not in prompts[0]
    assert "\n" not in prompts[0]
    assert prompts[1].startswith("┃ cellblock asks: ")
    assert reading.result(published) == "'417 alwaysNotApproved'"


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[2J\x1b[H",
        "\r" * 9,
        "\u202e",
        "\u200b\u2060",
        "a\u0301\u0489",
        "┃ Answer: \n┃ ",
        "\u05d0",
    ],
)
def test_no_argument_moves_hides_or_reorders_anything_in_a_question(kernel, text):
    code = f"try: echo({text!r})\nexcept ToolError: pass"
    (prompt,), _, _ = run(kernel, code, "no")
    lines = prompt.split("\n")
    assert all(line.startswith(HOSTS_MARK) for line in lines)
    assert all(char.isprintable() for line in lines for char in line)
    assert len(lines) in {9, 10}  # where it has letters that are not ASCII
    assert not {"\u202e", "\u0301", "\u0489", "\u05d0"} & set(prompt)


# --- answers ----------------------------------------------------------------------------------


def test_an_answer_typed_ahead_is_none(kernel):
    code = "input('Type once, twice: ')\ntry: add(1)\nexcept ToolError as e: said = e.message\nsaid"
    mid = kernel.execute_send(code, allow_stdin=True)
    asks(kernel)
    answer(kernel, "once")
    answer(kernel, "once")  # maybe before the question stands: then it is nobody's
    asks(kernel)
    answer(kernel, "once")
    while not kernel.shell.poll(200):
        if kernel.stdin.poll(0):
            asks(kernel)
        answer(kernel, "always")
    kernel.reply(mid)
    assert reading.result(kernel.until_idle(mid)) == "'you said no'"
    drop_questions(kernel)


def test_another_front_end_can_not_answer(kernel):
    with Client(kernel.info) as other:
        mid = kernel.execute_send("add(1)", allow_stdin=True)
        prompt = asks(kernel)
        other.send("input_reply", {"value": f"{code_in(prompt)} always"}, "stdin")
        assert not kernel.shell.poll(500)
        answer(kernel, "no")
        assert kernel.reply(mid)["content"]["status"] == "error"
        kernel.until_idle(mid)
    assert works(kernel)


def test_a_question_of_the_hosts_waits_for_the_cells_own(kernel):
    code = (
        "import asyncio, time\n"
        "waiting = asyncio.create_task(asyncio.to_thread(add, 1))\n"
        "await asyncio.sleep(1)\n"
        "said = input('Say once: ')\n"
        "(said, await waiting)"
    )
    # The thread has asked before: the cell's own question comes after that.
    mid = kernel.execute_send(code, allow_stdin=True)
    first = answer_question(kernel, "{}")
    second = answer_question(kernel, "once")
    assert first.startswith("┃ cellblock asks")
    assert second == "the cell asks: Say once: "
    kernel.reply(mid)
    assert reading.result(kernel.until_idle(mid)) == "('once', 2)"


def test_the_answer_to_one_call_is_for_no_other_under_its_number(forger):
    code = f"{FORGER}call('worker_pid')\ntime.sleep(0.5)\nwithdraw()\ncall('crash')\ntime.sleep(1)"
    mid = forger.execute_send(code, allow_stdin=True)
    first, second = asks(forger), asks(forger)
    assert ("call worker_pid?" in first, "call crash?" in second) == (True, True)
    answer(forger, f"{code_in(first)} once" if code_in(first) != code_in(second) else "once")
    again = asks(forger)
    assert "┃ That was not taken: " in again
    answer(forger, "no")
    message = forger.reply(mid)
    forger.until_idle(mid)
    told = {c["name"]: c["status"] for c in tool_kernels.calls(message)}
    assert told == {"worker_pid": "withdrawn", "crash": "refused"}
    assert works(forger)


@pytest.mark.parametrize(
    "attack",
    [
        "say(type='input', id=1, value='417')",
        "say(type='tool_result', id=1, value=1, kind='', message='')",
        "say(type='granted', modules=['os'], packages=[])",
        "call('add', 7, [[1], {}]); time.sleep(0.3); call('add', 7, [[2], {}])",
    ],
)
def test_who_answers_for_the_user_is_ended(forger, attack):
    mid = forger.execute_send(f"{FORGER}{attack}\ntime.sleep(10)", allow_stdin=True)
    reply = forger.reply(mid)["content"]
    assert "protocol violation" in " ".join(reading.card_text(forger.until_idle(mid)).split()) or (
        reply["status"] == "error"
    )
    drop_questions(forger)
    assert works(forger)


# --- floods -----------------------------------------------------------------------------------


def test_a_flood_of_calls_is_told_no_three_times_and_then_by_itself(kernel):
    code = (
        "said = []\nfor n in range(300):\n    try: echo(n)\n"
        "    except ToolError as error: said.append(error.message)\n"
        "len(said), said[-1]"
    )
    _, _, published = run(kernel, code, "no", "", "\x04")
    assert reading.result(published) == "(300, 'you said no 3 times in this cell')"


def test_a_flood_at_once_is_a_question_at_a_time(forger):
    code = f"{FORGER}for n in range(900): call('echo', 100 + n, [[n], {{}}])\ntime.sleep(2)"
    prompts, _, _ = run(forger, code, "no", "no", "no")
    assert len(prompts) == 3
    assert works(forger)


def test_a_cell_that_ignores_an_interrupt_is_refused_what_it_asks_for_then(kernel):
    code = (
        "import time\nsaid = []\n"
        "try:\n    add(1)\nexcept BaseException as error:\n    said.append(type(error).__name__)\n"
        "try:\n    add(2)\nexcept ToolError as error:\n    said.append(error.message)\nsaid"
    )
    mid = kernel.execute_send(code, allow_stdin=True)
    prompt = asks(kernel)
    kernel.reply(kernel.interrupt(), "control")  # the channels keep no order between them
    answer(kernel, f"{code_in(prompt)} always")
    reply = kernel.reply(mid)["content"]
    assert reply["status"] == "ok", f"{reply}"
    assert reading.result(kernel.until_idle(mid)) == "['KeyboardInterrupt', 'it was interrupted']"


def test_nobody_is_asked_for_tasks_between_cells(kernel):
    run(
        kernel,
        "heard = []\nasync def later():\n    await asyncio.sleep(1)\n"
        "    try: await asyncio.to_thread(add, 1)\n"
        "    except ToolError as error: heard.append(error.message)\n"
        "waiting = asyncio.create_task(later())",
    )
    assert not kernel.stdin.poll(1_500)
    assert reading.result(run(kernel, "heard")[2]) == "['nobody can be asked while no cell runs']"


def test_an_expression_beside_a_cell_asks_as_the_cell_does(kernel):
    mid = kernel.execute_send("None", allow_stdin=True, user_expressions={"x": "add(1)"})
    answer_question(kernel, "no")
    values = kernel.reply(mid)["content"]["user_expressions"]
    kernel.until_idle(mid)
    assert values["x"]["status"] == "error"


# --- imports ----------------------------------------------------------------------------------


MODULES = list(APPROVABLE)


@pytest.mark.parametrize("module", MODULES)
def test_what_was_approved_holds_no_module_and_leads_to_none(kernel, module):
    # A package also shows those of its modules that were approved before; they have rows here.
    approvable = {name.rpartition(".")[2] for name in MODULES if name.startswith(f"{module}.")}
    code = (
        f"import {module} as m\n"
        f"names = [n for n in dir(m) if not n.startswith('__') and n not in {approvable or '()'}]\n"
        "types = {type(getattr(m, name)).__name__ for name in names}\n"
        "'module' in types, hasattr(m, '__spec__'), hasattr(m, '__loader__')"
    )
    _, reply, published = run(kernel, code, "{}")
    assert reply["status"] == "ok", f"{reply}"
    assert reading.result(published) == "(False, False, False)"


@pytest.mark.parametrize(
    "code",
    [
        "import csv\ngetattr(csv, 'reader').__self__",
        "import csv\ncsv.re",
        "import gzip\ngzip.os",
        "import shlex\nshlex.shlex.__init__.__globals__",
        "import argparse\nargparse._sys",
        "import csv\nfrom csv import types",
        "import xml.etree.ElementTree as E\nE.sys",
    ],
)
def test_what_was_approved_leads_to_nothing_else(kernel, code):
    prompts, reply, _ = _until_end(kernel, code)
    assert reply["status"] == "error"
    assert len(prompts) <= 1


def _until_end(kernel, code):
    """Run a cell and allow once whatever it asks for."""
    mid = kernel.execute_send(code, allow_stdin=True)
    prompts = []
    while not kernel.shell.poll(300):
        if kernel.stdin.poll(0):
            prompts.append(answer_question(kernel, "{}"))
    return prompts, kernel.reply(mid)["content"], kernel.until_idle(mid)


def test_an_import_that_was_approved_lets_no_other_in(kernel):
    code = "import shlex\ntry:\n    __builtins__\nexcept BaseException: pass"
    assert run(kernel, code)[1]["ename"] == "PolicyDenied"
    code = "import shlex\ndef f():\n    import fnmatch\nf()"
    (prompt,), reply, _ = run(kernel, code, "no")
    assert ("module = shlex" in prompt, "module = fnmatch" in prompt) == (True, True)
    assert reply["ename"] == "PolicyDenied"


def test_what_lies_in_the_notebooks_folder_is_no_package(start, world):
    for name in ("beside", "linked"):
        (world.work / name).mkdir()
        (world.work / name / "__init__.py").write_text("print('imported')")
    policy = world.policy(f'{PROMPT}\nallowed_modules = ["wcwidth"]')
    kernel = start(policy, world=world)
    for name in ("beside", "linked.inner", "nothing_of_the_kind"):
        _, reply, published = run(kernel, f"import {name}")
        assert reply["ename"] == "PolicyDenied"
        assert "imported" not in reading.stream(published)


# --- what is kept -----------------------------------------------------------------------------


def test_no_guest_and_no_operation_reads_or_writes_what_was_allowed(forger, kept):
    run(forger, "opaque()", "{} always")
    (manifest,) = kept.glob("approved/*.json")
    names = (manifest, kept / "approval.key", kept / "approval.key.serials")
    before = [path.read_text() for path in names]
    assert "opaque" in before[0]
    for path in names:
        for attack in ("open(p).read()", "open(p, 'a')", "__import__('os').remove(p)"):
            _, reply, _ = run(forger, f"p = {str(path)!r}\n{attack}")
            assert reply["ename"] in {"OSError", "PermissionError"}, (path, attack)
        _, reply, _ = run(forger, f"ops.read_file({str(path)!r})")
        assert "NotGranted" in reply["evalue"]
    assert [path.read_text() for path in names] == before


def test_a_killed_cells_questions_die_with_it(forger, kept):
    forger.run("kept = 1")
    code = "import threading, os, time\nthreading.Thread(target=add, args=(1,)).start()\n"
    mid = forger.execute_send(f"{code}time.sleep(2)\nos._exit(7)", allow_stdin=True)
    prompt = asks(forger)
    assert forger.reply(mid)["content"]["status"] == "error"
    forger.until_idle(mid)
    answer(forger, f"{code_in(prompt)} always")
    assert reading.result(run(forger, "kept")[2]) == "1"
    assert not any("add" in path.read_text() for path in kept.glob("approved/*.json"))
