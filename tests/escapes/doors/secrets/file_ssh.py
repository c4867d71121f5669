"""P2: keys in the home folder."""

POLICY = "unsafe"


def attack(door):
    path = str(door.prey.places["ssh"])
    door.run(f"print(open({path!r}).read())")
    door.run(f"import os; print(os.read(os.open({path!r}, os.O_RDONLY), 100))")
