"""What a session takes of the memory for datagrams, which all programs of the machine share."""

import pytest

from cellblock import Policy, Sandbox
from cellblock.guest.confine.notify import MOST_SOCKETS
from support import machines

#: Fill sockets for UDP, whose ports Linux gives them when they connect, in several processes.
DATAGRAMS = """
import errno, os, socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.bind(("127.0.0.1", 0))
def fill():
    made = []
    while True:
        try:
            one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        except OSError as error:
            return made, errno.errorcode[error.errno]
        made.append(one)
        one.connect(sender.getsockname())
        for _ in range(12):
            sender.sendto(bytes(20_000), one.getsockname())
def fill_in_a_child():
    told, tell = os.pipe()
    waits, wait = os.pipe()
    if os.fork() == 0:
        try:
            os.close(wait)
            made, why = fill()
            os.write(tell, f"{len(made)} {why}".encode())
            os.read(waits, 1)
        finally:
            os._exit(0)
    os.close(tell)
    os.close(waits)
    return wait, os.read(told, 100).decode().split()
"""


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_a_session_takes_little_of_the_memory_for_datagrams_that_all_programs_share(
    home, backend, monkeypatch
):
    monkeypatch.setenv("PATH", machines.path(backend))
    assert home
    policy = Policy.preset("data", backend=backend, network_access=["127.0.0.1:9"])
    with Sandbox(policy) as one:
        assert one.execute(DATAGRAMS).success
        r = one.execute(
            "children = [fill_in_a_child() for _ in range(4)]; [c[1] for c in children]"
        )
        assert r.success, r.to_string()
        found = eval(r.result)
        assert {why for _, why in found} == {"ENOBUFS"}
        assert 100 < sum(int(number) for number, _ in found) <= MOST_SOCKETS
        # TCP goes on, and there is room again when they are closed.
        assert one.execute("socket.create_server(('127.0.0.1', 0)).close()").success
        assert one.execute("[os.close(wait) for wait, _ in children]; os.wait()").success
        r = one.execute("[os.wait() for _ in range(3)]; len(fill()[0])")
        assert int(r.result) > 100
