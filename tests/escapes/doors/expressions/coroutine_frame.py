"""P1: the builtins of a lambda's generator, by getattr."""


def attack(door):
    door.value(
        f"getattr(getattr((lambda: (yield))(), 'gi_' + 'frame'), 'f_' + 'builtins')['open']({door.secret!r}).read()"
    )
