"""P2: the connection file holds the key."""

POLICY = "unsafe"


def attack(door):
    door.run(f"print(open({str(door.kernel.file)!r}).read())")
