"""What cells have open: a waiting copy holds none of it, and has it again when it takes over."""

import pytest

from support import reading
from support.limits import tight_argv
from support.reading import run
from support.reading import value as values

#: Longer than a cell that is answered before its copy stands.
SLOW = "import time; time.sleep(0.2)\n"
OPENED = {
    "lock": (
        "import fcntl\nheld = open('held', 'w')\nfcntl.flock(held, fcntl.LOCK_EX)",
        "held.close()",
        "fcntl.flock(open('held'), fcntl.LOCK_SH | fcntl.LOCK_NB) is None",
        True,
    ),
    "lock by a number of one's own": (
        "import fcntl, os\nfile = open('held', 'w')\nfcntl.flock(os.dup2(file.fileno(), 900), 2)",
        "file.close(), os.close(900)",
        "fcntl.flock(open('held'), fcntl.LOCK_SH | fcntl.LOCK_NB) is None",
        True,
    ),
    "pipe": (
        "from subprocess import PIPE, Popen\ncat = Popen(['cat'], stdin=PIPE, stdout=PIPE)",
        "cat.stdin.write(b'said'), cat.stdin.close()",
        "cat.stdout.read()",
        b"said",
    ),
}


@pytest.fixture(scope="module")
def kernel(shared_world, start_shared):
    argv = tight_argv(shared_world, timeout=10.0, subprocess_execution=True, max_open_files=1_024)
    return start_shared(argv=argv, world=shared_world)


@pytest.mark.parametrize("kind", OPENED)
def test_what_a_cell_closes_is_open_nowhere(kernel, kind):
    opens, closes, needs_it_closed, value = OPENED[kind]
    for cell in (opens, closes):
        run(kernel, SLOW + cell)
    assert values(kernel, needs_it_closed) == value


def test_a_file_without_a_name_and_both_ends_of_a_pipe_are_there_after_a_kill(kernel):
    run(
        kernel,
        f"{SLOW}import os, tempfile\nnameless = tempfile.TemporaryFile()\nnameless.write(b'kept')\n"
        "nameless.flush()\nread, write = os.pipe()\nos.set_blocking(read, False)",
    )
    reply, published = kernel.run("nameless.write(b'lost')\nos.close(write)\nos._exit(3)")
    assert reply["ename"] == "CellStopped", reply
    (card,) = reading.cards(published, "outcome")
    assert card["lost"] == []
    look = "(nameless.seek(0), nameless.read(), os.write(write, b'x'), os.read(read, 9))"
    assert values(kernel, look) == (0, b"kept", 1, b"x")
