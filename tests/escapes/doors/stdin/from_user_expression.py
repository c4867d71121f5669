"""P3: an expression asks without leave."""


def attack(door, *, leave=False):
    kernel = door.kernel
    extra = {"allow_stdin": leave, "user_expressions": {"x": "input('Password: ')"}}
    mid = kernel.execute_send("1", **extra)
    asked = kernel.stdin.poll(500)
    if asked:
        kernel.recv("stdin")
        kernel.send("input_reply", {"value": ""}, "stdin")
    kernel.reply(mid)
    return asked


def control(door):
    """With leave it may, as in ipykernel."""
    return attack(door, leave=True)
