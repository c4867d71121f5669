"""P2: the source of a class, its file put into linecache."""

POLICY = "unsafe"


def attack(door):
    door.run(
        f"import linecache, sys, types\nm = types.ModuleType('m')\nm.__file__ = {door.secret!r}\nsys.modules['m'] = m\nclass C: pass\nC.__module__ = 'm'\nlinecache.getlines({door.secret!r})\nm.C = C"
    )
    return door.token in door.inspect("m")
