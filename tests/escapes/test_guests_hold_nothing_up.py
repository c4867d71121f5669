"""P2, P6, P10: nothing that a guest holds lets a cell hold up the host, its zygote or its helpers."""

import os
import signal
import time

import pytest

from cellblock.wire.messages import PAUSE
from support import machines, processes, reading
from support.kernels import argv_changed, start_staged

#: Find the sockets that a cell has. Those of its own event loops, all but the channel, have objects.
SOCKETS = """
import gc, os, socket, stat
own = {one.fileno() for one in gc.get_objects() if isinstance(one, socket.socket)} - {3}
def is_socket(fd):
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False
found = [fd for fd in range(3, 256) if fd not in own and is_socket(fd)]
found = {fd: socket.socket(fileno=os.dup(fd)) for fd in found}
"""
#: What is done to all of them, the channel too; a guest that spoils that is replaced.
ATTACKS = {
    "clog": """
for fd, held in found.items():
    if fd > 3:
        held.setblocking(False)
        try:
            while True: held.send(b"r")
        except OSError: pass
""",
    "empty packet": "for held in found.values(): held.send(b'')",
    "shut down": "for held in found.values(): held.shutdown(2)",
    "close": "os.closerange(3, 256)",
    "a fork shuts down": """
if os.fork() == 0:
    for held in found.values(): held.shutdown(2)
    os._exit(0)
os.wait()
""",
    "a fork closes": """
if os.fork() == 0:
    os.closerange(3, 256)
    os._exit(0)
os.wait()
""",
}
NARROW = '%policy narrow add.read_deny_paths=["private"]'


@pytest.mark.parametrize(("user", "backend"), machines.places())
def test_a_cell_holds_its_channel_and_no_line_to_anybody_else(start, user, backend):
    kernel = start_staged(start, user, backend)
    assert reading.stream(kernel.run(f"{SOCKETS}print(sorted(found))")[1]) == "[3]\n"


@pytest.mark.parametrize("backend", ["landlock", "bubblewrap"])
def test_a_cell_that_spoils_what_it_holds_holds_up_no_other_cell_and_no_narrowing(start, backend):
    kernel = start_staged(start, "same user", backend)
    for name, attack in ATTACKS.items():
        kernel.run(SOCKETS + attack, silent=True)
        assert reading.stream(kernel.run("print('after')")[1]) == "after\n", name
    assert kernel.run(NARROW)[0]["status"] == "ok"
    assert reading.stream(kernel.run("print('narrowed')")[1]) == "narrowed\n"


#: A zygote that hangs is found out and given up sooner.
SOON = (
    "import cellblock.host.guests.zygote as z, cellblock.host.session.requests as r; "
    "z.LOOK, r.CHECK = 0.1, 0.1"
)


@pytest.mark.parametrize("backend", ["landlock", "bubblewrap"])
def test_a_zygote_that_hangs_is_replaced_with_all_that_it_started(start, world, backend):
    if backend == "bubblewrap" and (why := machines.no_bubblewrap()):
        pytest.skip(f"no bubblewrap: {why}")
    world.backend = backend
    kernel = start(argv=argv_changed(SOON, "data"), world=world)
    kernel.run("x = 1")
    hung = kernel.tree()[1:]
    os.kill(kernel.zygote(), signal.SIGSTOP)
    # Each thread that a cell starts waits for the zygote.
    _, sent = kernel.run("import threading; threading.Thread(target=print).start()")
    cards = [one["data"]["text/plain"] for one in reading.of(sent, "display_data")]
    assert "its zygote did not answer" in "".join(cards)
    assert processes.gone(hung) == []
    assert reading.stream(kernel.run("print('after')")[1]) == "after\n"


def test_a_policy_is_narrowed_by_the_next_zygote_if_one_hangs_and_the_session_goes_on(start):
    kernel = start(argv=argv_changed(SOON, "data"))
    (kernel.world.work / "private").mkdir()
    kernel.world.write("private/file", "secret")
    assert reading.stream(kernel.run("print(open('private/file').read())")[1]) == "secret\n"
    os.kill(kernel.zygote(), signal.SIGSTOP)
    reply, sent = kernel.run(NARROW)
    cards = "".join(one["data"]["text/plain"] for one in reading.of(sent, "display_data"))
    assert (reply["status"], "are kept" in cards, "are gone" in cards) == ("ok", False, True)
    assert kernel.run("open('private/file')")[0]["status"] == "error"
    assert reading.stream(kernel.run("print('after')")[1]) == "after\n"


def test_who_mounts_and_hangs_holds_up_one_cell_and_is_told_of(start):
    kernel = start("data")
    (kernel.world.work / "private").mkdir()
    kernel.run("x = 1")
    (mounter,) = kernel.called("cb-mounter")
    os.kill(mounter, signal.SIGSTOP)
    time.sleep(PAUSE)
    sent = kernel.run("print('on')")[1]
    assert reading.stream(sent) == "on\n"
    assert reading.notices(sent) == (
        "[cellblock can't be sure that cells see files that you change from now on "
        "(the process that mounts does not answer). Restart the kernel]\n"
    )
    assert kernel.run(NARROW)[0]["status"] == "error"
    assert reading.stream(kernel.run("print(x)")[1]) == "1\n"
