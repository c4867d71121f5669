"""P1: a message signed with another kernel's key."""

from support.client import Client


def attack(door, **change):
    info = door.kernel.info | {"key": "0" * 32} | change
    with Client(info) as other:
        other.execute_send("print('FOR' + 'GED')")
        other.shell.poll(300)
    return "FORGED" in door.heard()


def control(door):
    """With the kernel's own it is heard."""
    return attack(door, key=door.kernel.info["key"])
