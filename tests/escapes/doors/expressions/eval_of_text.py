"""P1: eval of a text that no analysis reads."""


def attack(door):
    door.value(f"eval('op' + 'en')({door.secret!r}).read()")
