"""P2: the run-time folder lists connection files."""

POLICY = "unsafe"


def attack(door):
    _, published = door.run(f"import os; print(os.listdir({str(door.kernel.file.parent)!r}))")
    said = [m["content"] for m in published if m["msg_type"] == "stream"]
    return door.kernel.file.name in str(said)
