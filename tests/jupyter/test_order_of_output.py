"""What cells print, what their programs write and what they show: in the order that it happened."""

import pytest

from support import reading

#: Left in the namespace for all.
IMPORTS = """
import ctypes, multiprocessing, os, subprocess, sys, threading
from IPython.display import display
c = ctypes.CDLL(None)
def asked(number):
    print("worker", number)
    print("warns", number, file=sys.stderr)
"""
TO_STDOUT = {
    "subprocess": "subprocess.run(['echo', 'two'])",
    "os.write": "os.write(1, b'two\\n')",
    "os.system": "os.system('echo two')",
    "posix_spawn": "os.waitpid(os.posix_spawn('/bin/echo', ['echo', 'two'], os.environ), 0)",
    "puts": "c.puts(b'two')",
    "printf of half a line": "c.printf(b'two'); c.fflush(None); c.puts(b'')",
    "a fork": "(pid := os.fork()) or (print('two'), sys.stdout.flush(), os._exit(0)); os.waitpid(pid, 0)",
    "its descriptor": "subprocess.run(['echo', 'two'], stdout=sys.stdout)",
    "a thread": "t = threading.Thread(target=os.write, args=(1, b'two\\n')); t.start(); t.join()",
}
TO_STDERR = {
    "subprocess": "subprocess.run('echo two >&2', shell=True)",
    "os.system": "os.system('echo two >&2')",
    "print": "print('two', file=sys.stderr)",
    "a fork": "(pid := os.fork()) or (print('two', file=sys.stderr), os._exit(0)); os.waitpid(pid, 0)",
}


@pytest.fixture(scope="module")
def kernel(programs):
    """A kernel whose cells have what they need to write in every way."""
    made = programs
    assert made.run(IMPORTS)[0]["status"] == "ok"
    return made


def shown(published):
    """Return what was shown: pieces of text, joined by their stream, and displays."""
    found = []
    for message in published:
        content = message["content"]
        if message["msg_type"] == "stream":
            if found and found[-1][0] == content["name"]:
                found[-1][1] += content["text"]
            else:
                found.append([content["name"], content["text"]])
        elif message["msg_type"] in ("display_data", "execute_result"):
            found.append(["shown", content["data"]["text/plain"]])
    return found


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("how", TO_STDOUT)
def test_what_is_printed_before_and_after_something_is_written_stands_there(kernel, how, flush):
    code = (
        f"for n in range(3):\n    print('one', n, flush={flush}); {TO_STDOUT[how]}\n"
        "    print('three', n)\n"
    )
    reply, published = kernel.run(code)
    assert reply["status"] == "ok", reply.get("evalue")
    text = "".join(f"one {n}\ntwo\nthree {n}\n" for n in range(3))
    assert shown(published) == [["stdout", text]]


@pytest.mark.parametrize("how", TO_STDERR)
def test_what_goes_to_stderr_stands_between_what_is_printed(kernel, how):
    code = f"for n in range(3):\n    print('one', n); {TO_STDERR[how]}\n    print('three', n)\n"
    expected = [["stdout", "one 0\n"]]
    for n in range(3):
        expected.append(["stderr", "two\n"])
        expected.append(["stdout", f"three {n}\n" + (f"one {n + 1}\n" if n < 2 else "")])
    assert shown(kernel.run(code)[1]) == expected


def test_a_program_that_is_spoken_with_answers_between_the_lines(kernel):
    code = (
        "r, w = os.pipe()\n"
        "program = '''import os, sys\nfor line in sys.stdin:\n"
        "    os.write(1, b'heard ' + line.encode())\n    os.write(int(sys.argv[1]), b'.')'''\n"
        "p = subprocess.Popen([sys.executable, '-c', program, str(w)],"
        " stdin=subprocess.PIPE, pass_fds=[w], bufsize=0)\n"
        "for n in range(3):\n"
        "    print('say', n); p.stdin.write(b'%d\\n' % n); os.read(r, 1); print('said', n)\n"
        "p.stdin.close(); p.wait()"
    )
    text = "".join(f"say {n}\nheard {n}\nsaid {n}\n" for n in range(3))
    assert shown(kernel.run(code)[1])[0] == ["stdout", text]


def test_workers_of_a_pool_print_between_the_lines(data):
    data.run(IMPORTS)
    code = (
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "    for n in range(3): print('ask', n); pool.apply(asked, (n,)); print('got', n)"
    )
    published = data.run(code)[1]
    text = "".join(f"ask {n}\nworker {n}\ngot {n}\n" for n in range(3))
    assert reading.stream(published) == text
    assert reading.stream(published, "stderr") == "warns 0\nwarns 1\nwarns 2\n"


def test_displays_results_and_errors_stand_between_what_is_written(kernel):
    code = (
        "print('a'); os.write(1, b'b\\n'); display(1); os.write(1, b'c\\n'); display(2)\n"
        "print('d', file=sys.stderr); display(3); print('e'); 4"
    )
    assert shown(kernel.run(code)[1]) == [
        ["stdout", "a\nb\n"],
        ["shown", "1"],
        ["stdout", "c\n"],
        ["shown", "2"],
        ["stderr", "d\n"],
        ["shown", "3"],
        ["stdout", "e\n"],
        ["shown", "4"],
    ]


def test_what_c_code_has_begun_of_a_line_is_shown_with_its_cell(kernel):
    assert shown(kernel.run("print('a'); c.printf(b'half'); None")[1]) == [["stdout", "a\nhalf"]]


def test_text_that_is_much_and_text_without_an_end_of_line_come_whole(kernel):
    code = "for n in range(30): print('x' * 9_999, n, end=' '); os.write(1, b'y' * 5_000)"
    text = "".join("x" * 9_999 + f" {n} " + "y" * 5_000 for n in range(30))
    assert shown(kernel.run(code)[1]) == [["stdout", text]]


def test_the_descriptor_of_stdout_is_not_that_of_c_code(kernel):
    code = (
        "(sys.stdout.fileno() != sys.__stdout__.fileno() == 1,"
        " sys.stderr.fileno() != sys.__stderr__.fileno() == 2)"
    )
    assert reading.result(kernel.run(code)[1]) == "(True, True)"


def test_what_c_code_writes_can_be_caught_and_printed_by_a_library(kernel):
    # As wurlitzer does it: a pipe in the place of C's stdout, whose other end is printed.
    code = """
    r, w = os.pipe()
    kept = os.dup(1)
    os.dup2(w, 1)
    os.close(w)
    def show():
        while data := os.read(r, 1000): sys.stdout.write(f"caught {data.decode()}")
    thread = threading.Thread(target=show)
    thread.start()
    os.system("echo one")
    os.dup2(kept, 1)
    thread.join()
    os.system("echo two"); print("three")
    """
    published = kernel.run("if True:\n" + code)[1]
    assert shown(published) == [["stdout", "caught one\ntwo\nthree\n"]]


def test_a_task_of_an_earlier_cell_prints_under_that_cell(kernel):
    code = (
        "import asyncio\ngo = asyncio.Event()\n"
        "async def late():\n    await go.wait()\n    print('late')\n"
        "task = asyncio.create_task(late())"
    )
    mid = kernel.execute_send(code)
    kernel.reply(mid)
    kernel.until_idle(mid)
    _, published = kernel.run("print('a'); go.set(); await task; os.system('echo b'); print('c')")
    assert shown(published) == [["stdout", "a\nb\nc\n"]]
    late = [
        message
        for channel, message in kernel.log
        if channel == "iopub" and message["parent_header"].get("msg_id") == mid
    ]
    assert shown(late) == [["stdout", "late\n"]]
