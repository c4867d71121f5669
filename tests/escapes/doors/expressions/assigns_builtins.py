"""P1: an expression replaces what the next cell finds as builtins."""

ALONE = True


def attack(door):
    door.value("globals().__setitem__('print', __import__('os').system)")
    door.run(f"print('touch {door.mark}')")
