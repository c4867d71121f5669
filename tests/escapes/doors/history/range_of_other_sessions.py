"""P2: a range of another session, by its number from either end."""

from support.doors import after_other_kernels

prepare = after_other_kernels("safe")


def attack(door):
    door.run("here = 1")
    ranges = [
        door.history("range", session=session, start=0, stop=99, output=output)
        for session in range(-3, 4)
        for output in (True, False)
    ]
    return door.token in str(ranges)
