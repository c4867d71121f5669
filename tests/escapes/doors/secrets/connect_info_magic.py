"""P2: the magic that prints the connection and its key."""

POLICY = "unsafe"


def attack(door):
    door.run("%connect_info")
    door.run("from ipykernel.connect import get_connection_info; print(get_connection_info())")
