"""P2: a comm's handler is as confined as its cell was."""

from support.kernels import argv_for

POLICY = "unsafe"


def prepare(prey):
    policy = prey.world.policy("extends = 'unsafe'\ncomm_targets = ['t']\n")
    return {"argv": {"unsafe": argv_for(policy, "--allow-unsafe")}}


def attack(door):
    door.run(
        "import comm\ncomm.get_comm_manager().register_target('t',"
        f" lambda c, msg: open({door.mark!r}, 'w').write('x'))"
    )
    door.open_comm()
