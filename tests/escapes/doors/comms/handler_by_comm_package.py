"""P1: a handler registered through the comm package."""


def attack(door):
    door.run(
        "import comm\ncomm.get_comm_manager().register_target('t',"
        f" lambda c, msg: open({door.mark!r}, 'w').write('x'))"
    )
    door.open_comm()
