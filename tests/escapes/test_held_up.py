"""P2, P6, P10: nothing that a guest holds lets a cell hold up the host, its zygote or its helpers."""

import os
import signal

import pytest

from support import machines, processes, reading
from support.kernels import argv_for, placed

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
#: What is done to each descriptor above the channel; none of it is awaited.
ATTACKS = {
    "clog": """
for fd, held in found.items():
    if fd > 3:
        held.setblocking(False)
        try:
            while True: held.send(b"r")
        except OSError: pass
""",
    "end": """
for fd, held in found.items():
    if fd > 3:
        try: held.send(b"")
        except OSError: pass
        try: held.shutdown(2)
        except OSError: pass
        os.close(fd)
""",
}
PLACES = [
    (user, backend)
    for user in machines.users()
    for backend in ("landlock", "bubblewrap")
    if " in " not in user
]


@pytest.fixture(params=PLACES, ids=" ".join)
def kernel(request, start):
    """A kernel under preset data, whose writes are staged."""
    user, backend = request.param
    if backend == "bubblewrap" and (why := machines.no_bubblewrap()):
        pytest.skip(f"no bubblewrap: {why}")
    world, prefix = placed(user)
    (world.work / "private").mkdir()
    world.give(world.work / "private")
    text = f'extends = "data"\nbackend = "{backend}"\nsubprocess_execution = true\n'
    made = start(world.policy(text), "--allow-unsafe", world=world, prefix=prefix)
    made.own_world = True
    return made


def test_a_cell_holds_its_channel_and_no_line_to_anybody_else(kernel):
    assert reading.stream(kernel.run(f"{SOCKETS}print(sorted(found))")[1]) == "[3]\n"


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_cell_that_clogs_or_ends_what_it_holds_holds_up_nobody(kernel, attack):
    kernel.run(f"{SOCKETS}{ATTACKS[attack]}import time; time.sleep(0.4)", silent=True)
    assert reading.stream(kernel.run("print('after')")[1]) == "after\n"
    reply, _ = kernel.run('%policy narrow add.read_deny_paths=["private"]')
    assert reply["status"] == "ok"
    assert reading.stream(kernel.run("print('narrowed')")[1]) == "narrowed\n"
