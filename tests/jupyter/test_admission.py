"""P1: cells that were not approved, sent through every door of kernels without a language layer."""

import json

import pytest
import zmq

from cellblock.host.audit import log as chain
from support import reading
from support.admission import (
    ATTACKS,
    FINE,
    MARK,
    MARK_AS_VALUE,
    OBSERVE,
    RESET,
    UNSAFE,
    approve,
    ran,
    revoke,
)
from support.kernels import Kernel, World, argv_for

ASKS = "answer = input('name? ')\nprint(len(answer))"
READS = (
    "from pathlib import Path\n"
    "share = Path('{home}/.local/share')\n"
    "print((share / 'other').read_text())\n"
    "(share / 'cellblock' / 'approval.key').read_text()"
)
HANDLES = (
    "from comm import get_comm_manager\n"
    "def on_open(comm, message):\n"
    "    comm.on_msg(lambda message: heard.append(message['content']['data']))\n"
    "heard = []\n"
    "get_comm_manager().register_target('mine', on_open)"
)
HEARD = "print(heard)"
#: Installed, and imported by no guest before a cell does.
PACKAGE = "fastjsonschema"
#: Approved cells that import, by themselves or in a Python that they start, and print whether what
#: lies beside the notebook ran. Each file there prints "beside".
SHADOWED = f"import {PACKAGE}"
BESIDE = "import helper"
IN_A_CHILD = (
    "import subprocess, sys\n"
    "child = [sys.executable, '-c', 'import helper']\n"
    "print(subprocess.run(child, capture_output=True, text=True).stdout)"
)
CHILDREN = f"{UNSAFE}subprocess_execution = true\n"
IN_A_BARE_CHILD = IN_A_CHILD.replace("capture_output", "env={}, capture_output")
IMPORTS = (SHADOWED, BESIDE, IN_A_CHILD, IN_A_BARE_CHILD)
#: An approved cell that reads settings which lie beside the notebook.
DRAWS = "import matplotlib\nprint(matplotlib.rcParams['figure.hooks'])"
#: Approved cells that would run what is typed, or lies in a file.
UNSAID = {
    "a file": "%run evil.py",
    "a file, by a name that is made": "get_ipython().run_line_magic('r' + 'un', 'evil.py')",
    "a file, in a magic's code": "%%capture\n%run evil.py",
    "a debugger after errors": "%pdb on\n1/0",
    "a debugger after errors, without its magic": "get_ipython().call_pdb = True\n1/0",
    "a debugger": "breakpoint()\n1",
    "the debugger's module": "import pdb; pdb.Pdb().set_trace()\n1",
    "IPython's debugger": "from IPython.core.debugger import set_trace; set_trace()\n1",
    "a debugger of a statement": "import pdb; pdb.run('1')",
    "a console": "import code; code.interact()",
    "a shell in the shell": "from IPython import embed; embed()",
    "a shell for terminals": (
        "from IPython.terminal.interactiveshell import TerminalInteractiveShell as Shell\n"
        "Shell().mainloop()"
    ),
    "help": "help()",
    "a trait, by a variable's text": (
        "said = \"globals().update(ran=1) or 'png'\"\n%config InlineBackend.figure_format = {said}"
    ),
}


@pytest.fixture(scope="module")
def place():
    made = World()
    (made.home / ".local" / "share").mkdir(parents=True)
    (made.home / ".local" / "share" / "other").write_text("beside it")
    made.write("evil.py", MARK)
    yield made
    made.close()


@pytest.fixture(scope="module")
def begin(place):
    """Start a kernel in the shared world, ready to be heard."""
    started = []

    def begin(name, text, *options):
        kernel = Kernel(argv_for(place.policy(text, name), *options), world=place)
        started.append(kernel)
        return kernel.wait_heard()

    yield begin
    for kernel in started:
        kernel.close()


@pytest.fixture(scope="module")
def opened(begin):
    """Any cell may run: where attacks succeed."""
    return begin("opened", CHILDREN, "--allow-unsafe")


@pytest.fixture(scope="module")
def closed(begin, place):
    """Approved cells alone may run."""
    text = f'{CHILDREN}admission = "approved"\n'
    reads = READS.format(home=place.home)
    cells = (OBSERVE, RESET, FINE, ASKS, reads, HANDLES, HEARD, DRAWS, *IMPORTS, *UNSAID.values())
    approve(place, place.policy(text, "closed"), *cells)
    return begin("closed", text, "--allow-unsafe")


# --- by every door ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ATTACKS)
def test_what_was_not_approved_does_not_run(closed, name):
    closed.run(RESET)
    ATTACKS[name](closed)
    assert ran(closed) == "False"


@pytest.mark.parametrize("name", ATTACKS)
def test_positive_control_where_any_cell_may_run_it_runs(opened, begin, name):
    # `get_ipython().run_cell` leaves its guest no way to show results: it has one of its own.
    kernel = begin("text", UNSAFE, "--allow-unsafe") if name == "as text" else opened
    kernel.run(RESET)
    ATTACKS[name](kernel)
    assert ran(kernel) == "True"


@pytest.mark.quick
def test_what_was_approved_runs_in_any_order_and_again(closed):
    for _ in range(2):
        assert reading.result(closed.run(FINE)[1]) == "'fine'"


def test_an_expression_is_refused_beside_a_cell_that_runs(closed):
    reply, published = closed.run(FINE, user_expressions={"a": "x"})
    assert (reply["status"], reading.result(published)) == ("ok", "'fine'")
    assert reply["user_expressions"]["a"]["ename"] == "PolicyDenied"
    assert reply["user_expressions"]["a"]["evalue"].startswith("cell-not-approved: ")


def test_an_answer_is_text_for_the_cell_that_asked(closed):
    closed.run(RESET)
    mid = closed.execute_send(ASKS, allow_stdin=True)
    question = closed.recv("stdin")
    closed.send("input_reply", {"status": "ok", "value": MARK}, "stdin", parent=question)
    assert closed.reply(mid)["content"]["status"] == "ok"
    assert reading.stream(closed.until_idle(mid)) == f"{len(MARK)}\n"
    assert ran(closed) == "False"


def test_a_comm_message_is_data_for_a_function_that_an_approved_cell_defined(closed):
    closed.run(RESET)
    assert closed.run(HANDLES)[0]["status"] == "ok"
    asked = {"comm_id": "1", "target_name": "mine", "data": {}}
    closed.until_idle(closed.send("comm_open", asked))
    closed.until_idle(closed.send("comm_msg", {"comm_id": "1", "data": {"code": MARK}}))
    assert reading.stream(closed.run(HEARD)[1]) == f"[{{'code': '{MARK}'}}]\n"
    assert ran(closed) == "False"


def test_neither_the_control_channel_nor_a_debugger_takes_code(closed):
    """What refuses them is there without admission, too: `escapes/doors` has the controls."""
    closed.run(RESET)
    closed.send("execute_request", {"code": MARK, "silent": False}, "control")
    asked = {"expression": MARK_AS_VALUE, "context": "repl"}
    request = {"type": "request", "seq": 1, "command": "evaluate", "arguments": asked}
    for channel in ("control", "shell"):
        closed.send("debug_request", request, channel)
    assert ran(closed) == "False"


def test_completion_and_inspection_run_nothing(closed):
    closed.run(RESET)
    for code in ("globals().update(ran=1).", "[globals().update(ran=1)][0].a", f"{MARK}\nra"):
        closed.ask("complete_request", {"code": code, "cursor_pos": len(code)})
        closed.ask("inspect_request", {"code": code, "cursor_pos": len(code), "detail_level": 1})
    assert ran(closed) == "False"


@pytest.fixture
def beside(place):
    """Modules beside the notebook, put there after the approval."""
    files = [place.write(f"{name}.py", "print('beside')") for name in (PACKAGE, "helper")]
    yield
    for file in files:
        file.unlink()


@pytest.mark.usefixtures("beside")
def test_an_approved_import_finds_nothing_beside_the_notebook(closed):
    assert reading.stream(closed.run(SHADOWED)[1]) == ""
    for cell in (IN_A_CHILD, IN_A_BARE_CHILD):
        assert reading.stream(closed.run(cell)[1]) == "\n"
    reply, published = closed.run(BESIDE)
    assert reply["ename"] == "ModuleNotFoundError"
    assert reading.stream(published) == ""
    shown = " ".join(reading.card_text(published).split())
    assert "cells can't import modules of the folder that they run in" in shown
    assert "Install it as a package beside cellblock" in shown


@pytest.mark.usefixtures("beside")
def test_positive_control_where_any_cell_may_run_imports_look_beside_the_notebook(opened):
    assert [reading.stream(opened.run(cell)[1]).strip() for cell in IMPORTS] == ["beside"] * 4


def test_an_approved_plot_takes_no_name_of_code_from_settings_beside_the_notebook(
    closed, opened, place
):
    settings = place.write("matplotlibrc", "figure.hooks: helper:go\n")
    try:
        taken = [
            reading.stream(kernel.run(DRAWS)[1]).splitlines()[-1] for kernel in (closed, opened)
        ]
    finally:
        settings.unlink()
    assert taken == ["[]", "['helper:go']"]


@pytest.mark.parametrize("name", UNSAID)
def test_an_approved_cell_runs_nothing_that_is_typed_or_in_a_file(closed, name):
    closed.run(RESET)
    assert typed(closed, UNSAID[name]) == 0
    assert ran(closed) == "False"


@pytest.mark.parametrize(
    "name", ["a file, by a name that is made", "a debugger", "a trait, by a variable's text"]
)
def test_positive_control_where_any_cell_may_run_what_is_typed_or_in_a_file_runs(opened, name):
    opened.run(RESET)
    typed(opened, UNSAID[name])
    assert ran(opened) == "True"


def typed(kernel, code):
    """Run a cell, answer what it asks with code, then with an end; return how often it asked."""
    mid, asked = kernel.execute_send(code, allow_stdin=True), 0
    while True:
        ready, _, _ = zmq.select([kernel.shell, kernel.stdin], [], [], 30)
        if kernel.stdin not in ready:
            kernel.reply(mid)
            kernel.until_idle(mid)
            return asked
        value = ("!globals()['ran'] = 1", "continue", "quit")[min(asked, 2)]
        question = kernel.recv("stdin")
        kernel.send("input_reply", {"status": "ok", "value": value}, "stdin", parent=question)
        asked += 1


def test_views_and_blank_cells_need_no_approval(closed):
    (table,) = reading.cards(closed.run("%policy")[1], "policy")
    assert table["policy"]["admission"] == "approved"
    assert closed.run("")[0]["status"] == closed.run(" \n")[0]["status"] == "ok"


def test_the_key_is_out_of_reach_of_cells_that_read_what_is_beside_it(closed, place):
    reply, published = closed.run(READS.format(home=place.home))
    assert reading.stream(published) == "beside it\n"
    assert reply["ename"] in {"PermissionError", "FileNotFoundError"}  # the latter in namespaces


# --- what is shown, and recorded --------------------------------------------------------------


@pytest.mark.quick
def test_the_refusal_is_shown_and_says_what_to_do(closed):
    reply, published = closed.run("x = 'fine'\nx + x")
    (card,) = reading.cards(published, "denial")
    (found,) = card["findings"]
    assert found["rule"] == "cell-not-approved"
    assert "cellblock approve NOTEBOOK" in reading.card_text(published)
    assert (reply["status"], reply["ename"]) == ("error", "PolicyDenied")


@pytest.mark.usefixtures("closed")  # so that there is a key, and no approval under this policy
def test_approving_taking_back_and_tampering_count_from_the_next_cell_on(begin, place):
    text = 'admission = "approved"\naudit.folder = "{cache}/lab"\n'
    policy = place.policy(text, "lab")
    kernel = begin("lab", text)
    reply, published = kernel.run("1 + 1")
    assert reply["ename"] == "AdmissionProblem"
    shown = reading.card_text(published)
    assert "no notebook in" in shown
    assert "cellblock approve NOTEBOOK" in shown

    approve(place, policy, "1 + 1", name="b.ipynb")
    assert reading.result(kernel.run("1 + 1")[1]) == "2"
    assert kernel.run("2 + 2")[0]["ename"] == "PolicyDenied"

    manifest = manifest_of(place, "lab")
    whole = manifest.read_bytes()
    manifest.write_bytes(whole.replace(b'"1 + 1"', b'"2 + 2"'))
    for code in ("1 + 1", "2 + 2"):
        reply, published = kernel.run(code)
        assert reply["ename"] == "AdmissionProblem"
        assert "it was changed since it was signed" in reading.card_text(published)
    manifest.write_bytes(whole)
    assert reading.result(kernel.run("1 + 1")[1]) == "2"

    revoke(place, policy, "b.ipynb")
    assert kernel.run("1 + 1")[0]["ename"] == "PolicyDenied"
    kernel.end()
    log = records(place, "lab")
    assert [r.get("admission") for r in log if r["kind"] == "session-start"] == ["approved"]
    assert [r.get("cells", 0) for r in log if r["kind"] == "admission"] == [1, 0]
    decided = [(r["decision"], r.get("by", "")) for r in log if r["kind"] == "cell"]
    yes, no = ("allowed", "approved in b.ipynb, cell 1"), ("denied", "")
    assert decided == [("refused", ""), yes, no, ("refused", ""), ("refused", ""), yes, no]
    rules = [f["rule"] for r in log for f in r.get("findings", ())]
    assert rules == ["cell-not-approved", "cell-not-approved"]


def manifest_of(world, policy):
    folder = world.home / ".local" / "share" / "cellblock" / "approved"
    said = f'"policy":"{policy}"'.encode()
    (found,) = [path for path in folder.glob("*.json") if said in path.read_bytes()]
    return found


def records(world, folder):
    (session,) = chain.sessions(world.home / ".cache" / "cellblock" / folder)
    lines = session.file.read_text().splitlines()
    return [json.loads(line) for line in lines]
