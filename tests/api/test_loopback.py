"""Programs of one sandbox speak with each other at the loopback; those of two in a pool do not."""

import pytest

from cellblock import Policy, Sandbox, SandboxPool
from support import machines

SERVE = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
port = server.getsockname()[1]
threading.Thread(target=lambda: server.accept()[0].sendall(b"here"), daemon=True).start()
socket.create_connection(("127.0.0.1", port), 5).recv(4)
"""


@pytest.fixture(params=["bubblewrap", "landlock"])
def policy(request, home, monkeypatch):
    assert home
    monkeypatch.setenv("PATH", machines.path(request.param))
    return Policy.preset("data", backend=request.param)


def test_a_server_in_a_cell_is_reached_from_there_and_by_a_fork(policy, home):
    (home / "project").mkdir(exist_ok=True)
    with Sandbox(policy, project=home / "project") as one:
        assert one.execute(SERVE).result == "b'here'"
        one.execute(
            "threading.Thread(target=lambda: server.accept()[0].sendall(b'here'), daemon=True).start()"
        )
        (fork,) = one.fork()
        said = fork.execute("socket.create_connection(('127.0.0.1', port), 5).recv(4)")
        assert said.result == "b'here'"


def test_sandboxes_of_a_pool_have_no_loopback_in_common(policy):
    with SandboxPool(policy) as pool, pool.sandbox() as one:
        assert one.execute(SERVE).error.type in ("PermissionError", "OSError")
