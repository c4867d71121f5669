"""P3: an answer that nobody asked for waits for the next question."""

import time


def attack(door, early="early"):
    kernel = door.kernel
    kernel.send("input_reply", {"value": early}, "stdin")
    time.sleep(0.2)
    mid = kernel.execute_send("input()", allow_stdin=True)
    kernel.recv("stdin")
    kernel.send("input_reply", {"value": "asked"}, "stdin")
    kernel.reply(mid)
    return early in str(kernel.until_idle(mid))


def control(door):
    """What was asked for arrives."""
    return attack(door, "asked")
