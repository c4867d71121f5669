"""P2: the names of what lies in the home folder."""

POLICY = "unsafe"


def attack(door):
    _, published = door.run(f"import os; print(list(os.walk({str(door.prey.world.home)!r})))")
    return "Documents" in str([m["content"] for m in published if m["msg_type"] == "stream"])
