"""P2: credentials in the home folder."""

POLICY = "unsafe"


def attack(door):
    path = str(door.prey.places["aws"])
    door.run(f"print(open({path!r}).read())")
    door.run(f"import os; print(os.read(os.open({path!r}, os.O_RDONLY), 100))")
