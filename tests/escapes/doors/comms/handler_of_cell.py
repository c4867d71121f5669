"""P1: a handler that a cell registered by IPython's kernel."""


def attack(door):
    door.run(
        "get_ipython().kernel.comm_manager.register_target('t',"
        f" lambda comm, msg: open({door.mark!r}, 'w').write('x'))"
    )
    door.open_comm()
