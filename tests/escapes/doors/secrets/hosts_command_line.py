"""P2: the command line of the host, which names the connection file."""

POLICY = "unsafe"


def attack(door):
    _, published = door.run(f"print(open('/proc/{door.kernel.proc.pid}/cmdline').read())")
    return str(door.kernel.file) in str(
        [m["content"] for m in published if m["msg_type"] == "stream"]
    )
