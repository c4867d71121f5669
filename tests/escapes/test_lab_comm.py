"""The host's own comm, attacked from a guest that knows its id, and writes to its channel as it likes.

No cell opens it, speaks or closes there, or hears what a front end says. Each attack has its positive
control: a target that the policy names.
"""

import json

import pytest

from cellblock.errors import PolicyError
from cellblock.policy.model import Policy
from cellblock.render.outcomes import COMM_JSON
from support import reading
from support.kernels import World
from support.lab import TARGET, LabFront

pytestmark = pytest.mark.quick

FORGER = """
import json, os, msgspec
def say(kind, **content):
    body = msgspec.msgpack.encode({"type": "comm_out", "kind": kind, "content": content})
    os.write(3, len(body).to_bytes(4, "big") + body)
"""
HEARD = """
from comm import get_comm_manager
heard, manager = [], get_comm_manager()
def listen(name):
    before = getattr(manager, name)
    def handle(stream, ident, message):
        heard.append(message["content"])
        before(stream, ident, message)
    setattr(manager, name, handle)
for name in ("comm_open", "comm_msg", "comm_close"):
    listen(name)
for name in ("echo", "cellblock.lab"):
    manager.register_target(name, lambda comm, message: None)
"""


@pytest.fixture(scope="module")
def kernel(start_shared):
    world = World()
    policy = world.policy("extends = 'unsafe'\nadd.comm_targets = ['echo']\n")
    yield start_shared(policy, "--allow-unsafe", world=world)
    world.close()


@pytest.fixture
def lab(kernel):
    kernel.log.clear()
    made = LabFront(kernel)
    made.until("state")
    return made


def about(kernel, comm):
    """Return what the front end heard of a comm, but what the host says there itself."""
    return [
        (message["msg_type"], message["content"])
        for _, message in kernel.log
        if message["content"].get("comm_id") == comm and "body" not in message["content"]["data"]
    ]


def test_a_guest_that_forges_messages_opens_no_comm_of_the_hosts_and_says_nothing_there(
    kernel, lab
):
    forged = json.dumps({"n": 99, "kind": "state", "verified": True})
    code = f"""{FORGER}
data = {{"body": {forged!r}, "mac": "0" * 64}}
say("comm_open", comm_id="mine", target_name="{TARGET}", data={{}})
for comm in ("mine", "{lab.name}"):
    say("comm_open", comm_id=comm, target_name="echo", data={{}})
    say("comm_msg", comm_id=comm, data=data)
    say("comm_msg", comm_id=comm, data={{"said": "by a cell"}})
    say("comm_close", comm_id=comm, data={{}})
"""
    published = kernel.run(code)[1]
    assert lab.answer("check", "findings", code="1")["findings"] == []  # every code was right
    assert about(kernel, lab.name) == []
    # The control: a target that the policy names.
    assert [kind for kind, _ in about(kernel, "mine")] == ["comm_open", "comm_msg", "comm_close"]
    opened = reading.of(published, "comm_open")
    assert [one["target_name"] for one in opened] == ["echo"]
    shown = [one["data"].get(COMM_JSON) for one in reading.of(published, "display_data")]
    assert [one["target"] for one in shown if one] == [TARGET]


def test_a_guest_hears_nothing_of_what_a_front_end_says_to_the_host(kernel, lab):
    kernel.run(HEARD)
    late = LabFront(kernel)
    late.answer("check", "findings", code="secret_word = 1")
    kernel.send("comm_close", {"comm_id": lab.name, "data": {}})
    kernel.send("comm_open", {"comm_id": "control", "target_name": "echo", "data": {"a": 1}})
    heard = reading.stream(kernel.run("print(heard)")[1])
    assert "control" in heard
    assert not any(name in heard for name in (lab.name, late.name, "secret_word", TARGET))


def test_a_comm_of_a_cells_is_not_taken_over_by_the_hosts(kernel):
    kernel.run(f"{FORGER}\nsay('comm_open', comm_id='theirs', target_name='echo', data={{}})")
    kernel.log.clear()
    LabFront(kernel, "theirs")
    kernel.run("None")
    ((kind, content),) = about(kernel, "theirs")
    assert kind == "comm_close"
    assert content["data"]["reason"] == "its id is in use, or too long"


def test_no_policy_gives_cells_a_target_of_the_hosts():
    assert Policy.preset("safe", comm_targets=("cellblocks",)).comm_targets == ("cellblocks",)
    with pytest.raises(PolicyError, match="a target of the host's own"):
        Policy.preset("safe", comm_targets=(TARGET,))
