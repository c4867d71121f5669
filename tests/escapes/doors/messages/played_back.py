"""P1: a message that was heard once is heard again."""


def attack(door, times=2):
    kernel = door.kernel
    msg = kernel.session.msg("execute_request", {"code": "print('ON' + 'CE')", "silent": False})
    frames = kernel.session.serialize(msg)
    for _ in range(times):
        kernel.shell.send_multipart(frames)
    kernel.run("1")
    return door.heard().count("ONCE") - 1


def control(door):
    """Once it is."""
    return attack(door, times=1) == 0
