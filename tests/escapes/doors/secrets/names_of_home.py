"""P2: the names of what lies in the home folder."""

POLICY = "unsafe"


def attack(door):
    home = str(door.prey.world.home)
    return "Documents" in door.said(f"import os; print(list(os.walk({home!r})))")
