"""P1: a call inside an f-string's field."""


def attack(door):
    door.value(f'f"{{open({door.secret!r}).read()}}"')
