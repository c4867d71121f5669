"""P1: a silent run leaves a function behind that a later cell calls."""


def attack(door):
    door.run(f"def f(): return open({door.secret!r}).read()", silent=True)
    door.run("f()")
