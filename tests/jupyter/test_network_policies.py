"""Policies with a list of addresses, and the relay of a kernel that has one."""

import json
import os
import signal

import pytest

from support import reading
from support.address_lists import ALLOW, Place, policy_with_addresses
from support.kernels import Kernel, argv_for
from support.reading import run, value


@pytest.fixture(scope="module")
def place():
    made = Place()
    yield made
    made.close()


def test_a_relay_does_not_outlive_its_host(place, world):
    argv = argv_for(policy_with_addresses(world, place.listed), "--allow-unsafe")
    with Kernel(argv, world=world).wait_ready() as kernel:
        assert kernel.relay() in kernel.tree()
        kernel.proc.kill()
        kernel.proc.wait()


def test_without_a_list_there_is_no_relay(safe):
    assert safe.relays() == []


def test_under_preset_data_a_library_that_is_allowed_reaches_what_is_listed(start, world, place):
    pytest.importorskip("requests")
    pytest.importorskip("pandas", reason="extra 'data' is not installed")
    policy = world.policy(
        f'extends = "data"\nbackend = "landlock"\nnetwork_access = {json.dumps(place.listed)}\n'
    )
    kernel = start(policy, world=world)
    run(kernel, f"SITE, OTHER = {place.site.origin!r}, {place.other.origin!r}")
    run(kernel, "import requests, urllib.request")
    assert value(kernel, "requests.get(SITE + '/data').text") == "you asked for data"
    assert value(kernel, "urllib.request.urlopen(SITE + '/x').read()") == b"you asked for x"
    run(kernel, "import pandas as pd")
    assert value(kernel, "list(pd.read_csv(SITE + '/a.csv').columns)") == ["you asked for a.csv"]
    reply, _ = kernel.run("requests.get(OTHER)")
    assert reply["ename"] == "ConnectionError"
    assert ALLOW in reply["evalue"]
    place.untouched()


def test_a_list_has_no_gap_and_is_shown(start, world, place):
    policy = policy_with_addresses(
        world,
        [place.listed[2]],
        'backend = "landlock"\non_unsupported = "error"\n'
        'require = ["network_access"]\nread_deny_paths = []\nidle_timeout = "none"\n',
    )
    kernel = start(policy, "--allow-unsafe", world=world)
    (table,) = reading.cards(kernel.run("%policy")[1], "policy")
    (each,) = [one for one in table["enforcement"] if one["capability"] == "network_access"]
    assert (each["status"], table["policy"]["network_access"]) == ("asserted", [place.listed[2]])


def test_what_was_asked_for_is_on_the_record_also_what_a_shutdown_cuts_off(
    start, world, place, records
):
    kernel = start(policy_with_addresses(world, place.listed), "--allow-unsafe", world=world)
    port = place.names["ECHO"][1]
    run(kernel, f"import socket, time; ECHO = ('127.0.0.1', {port})")
    run(kernel, "for _ in range(3): socket.create_connection(ECHO).close()")
    mid = kernel.execute_send(
        "socket.create_connection(ECHO); print('on', flush=True); time.sleep(60)"
    )
    kernel.until(lambda m: m["msg_type"] == "stream", mid)
    assert kernel.end() == []
    kept = records(world, "connections")
    fields = ("cell", "reached", "refused")
    assert [{name: each.get(name, {}) for name in fields} for each in kept] == [
        {"cell": 3, "reached": {f"127.0.0.1:{port}": 3}, "refused": {}},
        {"cell": 4, "reached": {f"127.0.0.1:{port}": 1}, "refused": {}},
    ]
    assert records(world)[-1]["kind"] == "session-end"


def test_children_of_a_cell_have_the_same_way_out_and_no_other(start, world, place):
    policy = policy_with_addresses(world, place.listed, "subprocess_execution = true\n")
    kernel = start(policy, "--allow-unsafe", world=world)
    run(kernel, f"globals().update({place.names})\nimport os, socket")
    code = (
        "def child(act):\n"
        "    ours, theirs = os.pipe(); pid = os.fork()\n"
        "    if pid == 0:\n"
        "        try: said = act()\n"
        "        except OSError as exc: said = type(exc).__name__.encode()\n"
        "        os.write(theirs, said); os._exit(0)\n"
        "    os.close(theirs); os.waitpid(pid, 0); said = os.read(ours, 99); os.close(ours)\n"
        "    return said\n"
        "def reach():\n"
        "    s = socket.create_connection(ECHO); s.sendall(b'child'); return s.recv(9)\n"
        "def stray(): socket.create_connection(STRANGE)\n"
        "child(reach), child(stray)"
    )
    assert value(kernel, code) == (b"child", b"ConnectionRefusedError")
    place.untouched()


def test_with_the_whole_network_a_copy_has_no_connections_either(start, world, place):
    policy = world.policy('extends = "unsafe"\nnetwork_access = true\n')
    kernel = start(policy, "--allow-unsafe", world=world)
    run(kernel, f"HELD, ECHO = {place.names['HELD']}, {place.names['ECHO']}")
    run(kernel, "import socket; s, server = socket.create_connection(HELD), socket.socket()")
    run(kernel, "datagrams = socket.socket(type=socket.SOCK_DGRAM); server.listen()")
    run(kernel, "import time; time.monotonic(), time.sleep(0.15)")
    with place.take() as peer:
        reply, published = kernel.run("import os; os._exit(0)")
        assert reply["ename"] == "CellStopped"
        assert peer.recv(1) == b""
    (card,) = reading.cards(published, "outcome")
    assert card["lost"] == ["1 network connection"]
    assert kernel.run("s.recv(1)")[0]["evalue"].endswith("endpoint is not connected")
    # What is no connection is as it was.
    assert value(kernel, "datagrams.sendto(b'x', ECHO)") == 1
    code = "socket.create_connection(server.getsockname()).close(), server.accept()[1][0]"
    assert value(kernel, code) == (None, "127.0.0.1")


def test_under_preset_safe_a_list_changes_nothing_for_cells(start, world, place):
    listed = json.dumps(place.listed)
    policy = world.policy(f'extends = "safe"\nnetwork_access = {listed}\nallowed_modules = []\n')
    kernel = start(policy, world=world)
    run(kernel, "kept = [1]; [n for n in range(1_000_000) if not n]")
    os.kill(kernel.sole_guest(), signal.SIGKILL)
    assert value(kernel, "kept") == [1]
