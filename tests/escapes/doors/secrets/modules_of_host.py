"""P2: the host's own objects, in the guest's modules."""

POLICY = "unsafe"
ALONE = True


CODE = "import gc, sys\nprint([k for k in sys.modules if k.startswith(('cellblock.host', 'cellblock.jupyter', 'zmq', 'ipykernel'))])"


def attack(door):
    _, published = door.run(CODE)
    said = "".join(m["content"]["text"] for m in published if m["msg_type"] == "stream")
    return "'" in said
