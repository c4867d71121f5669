"""P1: help shows an object by its own repr."""


def attack(door):
    door.run(f"class C:\n    def __repr__(self): return open({door.secret!r}).read()\nc = C()")
    return door.token in door.inspect("c", 0)
