"""P2: completing an import names what lies beside the notebook."""


def attack(door):
    door.prey.world.write("zz_quarterly_numbers.py", "")
    return [m for m in door.complete("import zz_quar") if "quarterly" in m]
