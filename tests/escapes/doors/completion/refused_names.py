"""P1: completion offers builtins that would be refused."""


def attack(door):
    return [
        m for m in door.complete("__impo") + door.complete("exe") if m in ("__import__", "exec")
    ]
