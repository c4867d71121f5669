"""``!command``: shown as it comes, and ended by its shell's end or an interrupt."""

import shutil
from pathlib import Path

import pytest

from support import reading


def needs(program, settings="/etc"):
    there = shutil.which(program) is not None and Path(settings).exists()
    return pytest.mark.skipif(not there, reason=f"{program} is not installed")


@pytest.fixture(scope="module")
def kernel(programs):
    """A kernel whose cells have a folder that they may write to."""
    programs.run("import os, tempfile\nos.chdir(tempfile.mkdtemp())")
    return programs


def texts(published):
    return reading.stream(published), reading.stream(published, "stderr")


def said(kernel, mid, text):
    """Wait until a cell has said ``text``."""
    heard = ""

    def is_said(message):
        nonlocal heard
        heard += message["content"]["text"] if message["msg_type"] == "stream" else ""
        return text in heard

    kernel.until(is_said, mid)
    return heard


def stop(kernel, mid):
    """Interrupt a cell, and wait for its end."""
    kernel.interrupt()
    assert kernel.reply(mid)["content"]["status"] == "ok"
    kernel.until_idle(mid)


@pytest.mark.parametrize("written", [".", r"10%\r", r"line\n"])
def test_what_a_command_writes_is_shown_while_it_runs(kernel, written):
    mid = kernel.execute_send(f"!printf '{written}'; sleep 600")
    said(kernel, mid, written[0])
    stop(kernel, mid)


def test_programs_in_python_show_each_line_while_they_run(kernel):
    program = "import time; print('begun'); time.sleep(600)"
    mid = kernel.execute_send(f'import sys\n!{{sys.executable}} -c "{program}"')
    said(kernel, mid, "begun")
    stop(kernel, mid)


def test_a_command_does_not_wait_for_what_it_leaves_in_the_background(kernel):
    program = "import os, time\nwhile not os.path.exists('go'): time.sleep(.02)\nprint('late')"
    kernel.run(f"import sys\nwith open('program.py', 'w') as file: file.write({program!r})")
    mid = kernel.execute_send("!{sys.executable} program.py & echo started\nprint('next')")
    assert kernel.reply(mid)["content"]["status"] == "ok"
    assert reading.stream(kernel.until_idle(mid)) == "started\r\nnext\n"
    mid = kernel.execute_send("open('go', 'w').close()")
    kernel.until(lambda m: m["msg_type"] == "stream" and "late" in m["content"]["text"])
    assert kernel.reply(mid)["content"]["status"] == "ok"


def test_a_command_in_the_background_alone_is_refused_as_under_ipykernel(kernel):
    reply, _ = kernel.run("!sleep 0 &")
    assert (reply["ename"], reply["evalue"]) == ("OSError", "Background processes not supported.")


@pytest.mark.parametrize(
    ("cell", "out", "err", "result"),
    [
        ("v = 'a'\n!W=c; echo $v {v}b $$W; echo d >&2", "a ab c\r\nd\r\n", "", None),
        ("!exit 3\n_exit_code", "", "", "3"),
        ("!exit 137\n_exit_code", "", "", "-9"),
        ("print('1')\n!echo 2\nprint('3')", "1\n2\r\n3\n", "", None),
        ("x = !echo a; echo b >&2\nx", "", "", "['a', 'b']"),
        ("!!echo a", "", "", "['a']"),
        ("%sx echo a", "", "", "['a']"),
        ("%system echo a", "", "", "['a']"),
        ("%%bash\necho a\necho b >&2", "a\n", "b\n", None),
        ("%%bash --out x\necho a", "", "", None),
        ("%%capture x\n!echo a", "", "", None),
        ("%%capture x\n!echo a\nNone\n", "", "", None),
        ("import os; os.system('echo a'); print(x.stdout.__repr__())", "a\n'a\\r\\n'\n", "", None),
        (r"!printf '\344\275\240 \377'", "\u4f60 \ufffd", "", None),
    ],
)
def test_shell_escapes_do_as_under_ipykernel(kernel, cell, out, err, result):
    reply, published = kernel.run(cell)
    assert reply["status"] == "ok", reply.get("evalue")
    assert (*texts(published), reading.result(published)) == (out, err, result)


@pytest.mark.parametrize(
    "command",
    [
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -subj /CN=cell",
        pytest.param("man -w man", marks=needs("man", "/etc/manpath.config")),
        pytest.param("java -XshowSettings:locale -version", marks=needs("java")),
    ],
)
def test_programs_find_their_settings(kernel, command):
    kernel.run(f"!{command} 2> errors")
    _, published = kernel.run("print(_exit_code, open('errors').read())")
    assert texts(published)[0].startswith("0 "), texts(published)
