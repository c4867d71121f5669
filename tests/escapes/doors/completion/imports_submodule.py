"""P1: completing a dotted import imports the package."""


def attack(door):
    folder = door.prey.world.work / "evilpack"
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").write_text(door.prey.module("evilpack"))
    door.complete("import evilpack.")
    door.complete("from evilpack.sub import ")
