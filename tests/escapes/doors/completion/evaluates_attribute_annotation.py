"""P1: completion evaluates a class's annotation that was left as text."""

CONTROL = "unsafe"


def attack(door):
    return door.recorded(
        "c.attr.",
        "class C:\n    attr: 'Base[exec]'\n    def __getattr__(self, name): return 1\nc = C()\n",
    )
