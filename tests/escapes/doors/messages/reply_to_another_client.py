"""P3: a reply goes to whom it answers."""

from support.client import Client


def attack(door, look=lambda _, other: other):
    with Client(door.kernel.info) as other:
        other.wait_heard()
        mid = door.kernel.execute_send("'mine'")
        heard = look(door.kernel, other).shell.poll(500)
        door.kernel.reply(mid)
        return heard


def control(door):
    """Who asked is answered."""
    return attack(door, lambda kernel, _: kernel)
