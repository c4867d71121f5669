"""P2: the source of a function whose code names another file."""

POLICY = "unsafe"


def attack(door):
    door.run(f"exec(compile('def f(): pass', {door.secret!r}, 'exec'))")
    return door.token in door.inspect("f")
