"""P2: the run-time folder lists connection files."""

POLICY = "unsafe"


def attack(door):
    folder = str(door.kernel.file.parent)
    return door.kernel.file.name in door.said(f"import os; print(os.listdir({folder!r}))")
