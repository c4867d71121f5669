"""P2: the command line of the host, which names the connection file."""

POLICY = "unsafe"


def attack(door):
    said = door.said(f"print(open('/proc/{door.kernel.proc.pid}/cmdline').read())")
    return str(door.kernel.file) in said
