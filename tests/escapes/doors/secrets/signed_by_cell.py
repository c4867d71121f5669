"""P2: a cell signs a message of its own with the kernel's session."""

POLICY = "unsafe"


def attack(door):
    door.run("print(get_ipython().kernel.session.key.decode())")
