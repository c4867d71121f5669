"""P2: whatever mode safe lets code see of the objects there are."""


def attack(door):
    door.run(
        "import gc\nprint([o for o in gc.get_objects() if isinstance(o, dict) and 'CANARY' in o])"
    )
    door.run(
        "import os, gc\nprint([dict(o) for o in gc.get_objects() if type(o).__name__ == '_Environ'])"
    )
