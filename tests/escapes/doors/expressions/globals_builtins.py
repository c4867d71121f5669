"""P1: the builtins by way of globals()."""


def attack(door):
    door.value(
        f"(lambda b: b.get('open') if isinstance(b, dict) else b.open)(globals()['__builtins__'])({door.secret!r}).read()"
    )
