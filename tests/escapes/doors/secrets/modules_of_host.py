"""P2: the host's own objects, in the guest's modules."""

POLICY = "unsafe"
ALONE = True


CODE = "import gc, sys\nprint([k for k in sys.modules if k.startswith(('cellblock.host', 'cellblock.jupyter', 'zmq', 'ipykernel'))])"


def attack(door):
    return "'" in door.said(CODE)
