"""P2: a descriptor that whoever started the kernel left open."""

POLICY = "unsafe"


CODE = "import os\nfor fd in range(3, 64):\n    try: print(os.pread(fd, 100, 0))\n    except OSError: pass"


def prepare(prey):
    return {"prefix": ("sh", "-c", f'exec 7<{prey.secret}; exec "$@"', "sh")}


def attack(door):
    door.run(CODE)
