"""P1: a comm opened on the control channel calls a cell's handler while a cell runs."""

import time

from support.kernels import argv_for

POLICY = "unsafe"


def prepare(prey):
    policy = prey.world.policy("extends = 'unsafe'\ncomm_targets = ['t']\n")
    return {"argv": {"unsafe": argv_for(policy, "--allow-unsafe")}}


def attack(door):
    door.run(
        "import comm\ncalled = []\n"
        "comm.get_comm_manager().register_target('t', lambda c, m: called.append(1))"
    )
    content = {"comm_id": "c", "target_name": "t", "data": {}}
    door.kernel.send("comm_open", content, "control")
    time.sleep(0.3)
    return "1" in door.value("called")["data"]["text/plain"]


def control(door):
    """On shell the handler is called."""
    attack(door)
    door.open_comm()
    return door.value("called")["data"]["text/plain"] == "[1]"
