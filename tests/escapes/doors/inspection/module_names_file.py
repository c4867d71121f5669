"""P2: the source of a module whose __file__ is another file."""

POLICY = "unsafe"


def attack(door):
    door.run(f"import types\nm = types.ModuleType('m')\nm.__file__ = {door.secret!r}")
    return door.token in door.inspect("m")
