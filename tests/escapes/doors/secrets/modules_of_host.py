"""P2: the host's own objects, in the guest's modules."""

POLICY = "unsafe"
ALONE = True


#: What ipykernel's modules would bring along: they are executed when they are asked (ADR 0026).
CODE = "import gc, sys\nprint([k for k in sys.modules if k.startswith(('cellblock.host', 'cellblock.jupyter', 'zmq', 'tornado', 'jupyter_client'))])"


def attack(door):
    return "'" in door.said(CODE)
