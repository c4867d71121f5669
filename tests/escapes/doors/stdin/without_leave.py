"""P3: a request that takes no input is asked no question."""


def attack(door, *, leave=False):
    kernel = door.kernel
    mid = kernel.execute_send("input('Password: ')", allow_stdin=leave)
    asked = kernel.stdin.poll(500)
    if asked:
        kernel.recv("stdin")
        kernel.send("input_reply", {"value": ""}, "stdin")
    kernel.reply(mid)
    return asked


def control(door):
    """One that does is."""
    return attack(door, leave=True)
