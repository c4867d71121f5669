"""P3: a question goes to the front end whose cell asks, and to no other."""

from support.client import Client


def attack(door, look=lambda _, other: other):
    with Client(door.kernel.info) as other:
        other.wait_heard()
        mid = door.kernel.execute_send("input('Name? ')", allow_stdin=True)
        asked = look(door.kernel, other).stdin.poll(500)
        door.kernel.recv("stdin")
        door.kernel.send("input_reply", {"value": ""}, "stdin")
        door.kernel.reply(mid)
        return asked


def control(door):
    """The one that asks is asked."""
    return attack(door, lambda kernel, _: kernel)
