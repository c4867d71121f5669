"""P2: the source of what a function says it wraps."""

POLICY = "unsafe"


def attack(door):
    door.run(
        f"exec(compile('def g(): pass', {door.secret!r}, 'exec'))\ndef f(): pass\nf.__wrapped__ = g"
    )
    return door.token in door.inspect("f")
