"""P1: help calls a hook of the object's."""


def attack(door):
    door.run(f"class C:\n    def getdoc(self): return open({door.secret!r}).read()\nc = C()")
    return door.token in door.inspect("c", 0)
