"""P1: a message is heard again after a thousand others."""


def attack(door, times=2):
    kernel = door.kernel
    msg = kernel.session.msg("execute_request", {"code": "print('TW' + 'ICE')", "silent": False})
    frames = kernel.session.serialize(msg)
    for _ in range(times):
        kernel.shell.send_multipart(frames)
        for _ in range(1_000):
            kernel.send("kernel_info_request", {})
        kernel.run("1")
    return door.heard().count("TWICE") - 1


def control(door):
    """Once it is."""
    return attack(door, times=1) == 0
