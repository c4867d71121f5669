"""A remedy works: its block is pasted into a file, and the cell does what it was refused."""

import http.server
import re
import threading

import pytest

from cellblock import Sandbox
from cellblock.policy.edit import add_lines

pytestmark = pytest.mark.usefixtures("home")
_CARDS = ("application/vnd.cellblock.denial+json", "application/vnd.cellblock.refusal+json")


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "data/a.csv").write_text("x\n1\n")
    (folder / "helper.py").write_text("answer = 42\n")
    return folder


@pytest.fixture
def site():
    """The address of a server on this machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'["there"]')

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/items"
        server.shutdown()


def card_of(result):
    cards = [one.content["data"] for one in result.outputs if one.kind == "display_data"]
    (card,) = [card[kind] for card in cards for kind in _CARDS if kind in card]
    return card


def refused(policy, project, cell):
    """Return the card of a cell that a policy refuses."""
    with Sandbox(policy, project=project) as sandbox:
        result = sandbox.execute(cell)
        assert not result.success
        return card_of(result)


def pasted(card, folder):
    """Return a policy file that is nothing but a card's block."""
    (folder / "cells.toml").write_text("\n".join(card["write"]))
    return str(folder / "cells.toml")


#: What was refused, and what of it is asked for again: the cell, or the call that the card names.
CELLS = [
    ("import shutil\nprint(shutil.which('x'))", ""),
    ("import shlex, getopt\nprint(getopt.__name__, shlex.__name__)", ""),
    ("import os\nprint(os.getcwd())", ""),
    ("import os\nprint('x' in os.environ)", ""),
    ("import numpy\nprint(numpy.arange(3).sum())", ""),
    ("%env\nprint(1)", ""),
    ("import sqlite3, gc\nprint(gc.isenabled())", ""),
    ("print(open('data/a.csv').read())", r"call (ops\.read_file\(.*?\)) once"),
    ("!ls data", r"call (ops\.list_dir\(.*?\)) once"),
    ("!cat data/a.csv", r"call (ops\.read_file\(.*?\)) once"),
    ("f = open('o.txt', 'w')", r"call (ops\.write_file\(.*?\)) once"),
    ("f = open('results/o.txt', 'w')", r"call (ops\.write_file\(.*?\)) once"),
]


@pytest.mark.parametrize(("cell", "call"), CELLS)
def test_a_pasted_block_lets_the_cell_do_what_it_was_refused(cell, call, project, tmp_path):
    card = refused("safe", project, cell)
    said = " ".join(one["text"] for one in card["instead"])
    for folder in re.findall(r"the folder (\w+) is there", said):
        (project / folder).mkdir()
    found = re.search(call, said) if call else None
    again = f"text = 'new'\nprint({found[1]})" if found else cell
    with Sandbox(pasted(card, tmp_path), project=project) as sandbox:
        result = sandbox.execute(again)
        assert (result.success, bool(result.output)) == (True, True), result.to_string()
        if found:  # and what the card says now runs as it stands
            rewrite = card_of(sandbox.execute(cell))["instead"][0]["rewrite"]
            result = sandbox.execute("\n".join(rewrite))
            assert result.success, result.to_string()


def test_where_the_folder_to_write_to_is_missing_that_is_said_when_the_kernel_starts(
    project, tmp_path
):
    card = refused("safe", project, "f = open('o.txt', 'w')")
    with (
        pytest.raises(Exception, match=f"Create {project}/work"),
        Sandbox(pasted(card, tmp_path), project=project) as sandbox,
    ):
        sandbox.execute("1")


def test_a_block_for_two_cells_is_one_and_policy_add_takes_it_for_a_file_that_is_there(
    project, tmp_path
):
    file = tmp_path / "own.toml"
    file.write_text('extends = "safe"\n\n[add]\nallowed_modules = ["gc"]\n# mine\n')
    cell = "import shutil\nfor name in open('data/a.csv'): print(shutil)"
    card = refused(str(file), project, cell)
    assert card["allow"] == (
        f"To allow it, add this to your policy file {file}, by cellblock policy add {file} 'LINES', and restart the "
        "kernel."
    )
    assert card["write"] == [
        'add.allowed_modules = ["shutil"]',
        'ops.read_file.roots = ["{project}"]',
        'add.read_deny_paths = ["@secrets"]',
    ]
    add_lines(str(file), "\n".join(card["write"]), extends="safe", project=project)
    assert "# mine" in file.read_text()
    with Sandbox(str(file), project=project) as sandbox:
        result = sandbox.execute("import shutil, gc\nprint(ops.read_file('data/a.csv'))")
        assert result.output == "x\n1\n\n", result.to_string()


def test_a_host_that_the_cell_names_is_asked_under_the_pasted_block(project, tmp_path, site):
    card = refused("safe", project, f"import requests\nprint(requests.get({site!r}).json())")
    (said,) = card["instead"]
    call = re.search(r"call (ops\.http\(.*?\)) once", said["text"], re.IGNORECASE)
    with Sandbox(pasted(card, tmp_path), project=project) as sandbox:
        result = sandbox.execute(f"{call[1]}.json()")
        assert result.result == "['there']", result.to_string()


def test_a_module_beside_the_notebook_is_imported_by_the_kernel_that_the_card_names(project):
    cell = "import helper\nprint(helper.answer)"
    (said,) = refused("safe", project, cell)["instead"]
    (policy,) = re.findall(r"the kernel cellblock \((\w+)\)", said["text"])
    with Sandbox(policy, project=project) as sandbox:
        assert sandbox.execute(cell).output == "42\n"


def test_what_a_card_says_to_do_in_the_cell_works_in_the_cell(project):
    with Sandbox("safe", project=project) as sandbox:
        (said,) = card_of(sandbox.execute("%debug"))["instead"]
        assert sandbox.execute(re.search("%xmode Verbose", said["text"])[0]).success
        failed = sandbox.execute("def f(secret):\n    return 1 / secret\nf(0)")
        assert "f(secret=0)" in failed.error.traceback

        (said,) = card_of(sandbox.execute("__builtins__.len([1])"))["instead"]
        assert "len(x)" in said["text"]
        assert sandbox.execute("x = [1]\nlen(x)").result == "1"


def test_a_file_that_the_os_layer_keeps_is_read_under_the_pasted_block(project, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.txt").write_text("b")
    cell = f"print(open({str(other / 'b.txt')!r}).read())"
    card = refused("data", project, cell)
    assert card["write"][0] == 'extends = "data"'
    with Sandbox(pasted(card, tmp_path), project=project) as sandbox:
        assert sandbox.execute(cell).output == "b\n"


def test_an_exceptions_message_has_the_command_in_one_line(project, tmp_path):
    cell = f"open({str(tmp_path / 'b.txt')!r})"
    (tmp_path / "b.txt").write_text("b")
    with Sandbox("data", project=project) as sandbox:
        message = sandbox.execute(cell).error.message
    lines = f'add.filesystem_read_roots = ["{tmp_path / "b.txt"}"]'
    assert f"To allow it: cellblock policy add cells.toml --extends data '{lines}'" in message
    assert "\n" not in message


def test_memory_that_the_machine_does_not_have_is_not_promised(project):
    cell = "import numpy\nnumpy.ones(10**15)"
    card = refused("data", project, cell)
    assert (card["field"], card["write"]) == ("memory_max_bytes", [])
    assert re.match(r"This machine has [\d.]+ GiB of memory: work on parts", card["instead"])
