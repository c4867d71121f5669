"""P1: full-width letters, which Python reads as plain ones (PEP 3131)."""


def attack(door):
    door.value(f"\uff4f\uff50\uff45\uff4e({door.secret!r}).read()")
