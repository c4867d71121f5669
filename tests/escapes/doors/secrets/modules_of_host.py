"""P2: the host's own objects, in the guest's modules."""

POLICY = "unsafe"
ALONE = True


#: The shell has ipykernel's name (ADR 0136), in a module of that name with nothing else in it.
CODE = "import gc, sys\nprint([k for k in sys.modules if k.startswith(('cellblock.host', 'cellblock.jupyter', 'zmq', 'ipykernel')) and k != 'ipykernel.zmqshell'])"


def attack(door):
    return "'" in door.said(CODE)
