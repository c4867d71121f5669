"""P3: a request that claims a parent shows nothing under it."""


def attack(door, *, claim=True):
    kernel = door.kernel
    parent = {"msg_id": "somebody-elses", "msg_type": "execute_request"} if claim else None
    mid = kernel.send("execute_request", {"code": "1"}, parent=parent)
    published = kernel.until_idle(mid)
    return [m for m in published if m["parent_header"]["msg_id"] == "somebody-elses"]


def control(door):
    """Its own id is on what it shows."""
    kernel = door.kernel
    mid = kernel.send("execute_request", {"code": "1"})
    return kernel.until_idle(mid)
