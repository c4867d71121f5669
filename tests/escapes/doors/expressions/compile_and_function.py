"""P1: code compiled from text and made a function."""


def attack(door):
    door.value(
        "type(lambda: 0)(compile('__import__(\"os\").environ[\"CANARY\"]', 'x', 'eval'), globals())()"
    )
