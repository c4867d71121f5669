"""P2: the environment that the guest was started with."""

POLICY = "unsafe"


def attack(door):
    door.run("print(open('/proc/self/environ').read())")
