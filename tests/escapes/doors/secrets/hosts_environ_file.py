"""P2: the environment of the host."""

POLICY = "unsafe"


def attack(door):
    door.run(f"print(open('/proc/{door.kernel.proc.pid}/environ').read())")
