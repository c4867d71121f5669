"""P8: what a notebook or a message says of the policy."""

METADATA = {
    "policy": "unsafe",
    "cellblock": {"policy": "unsafe", "mode": "unsafe"},
    "tags": ["unsafe", "trusted"],
    "kernelspec": {"argv": ["--allow-unsafe"]},
    "deletedCells": ["x" * 100] * 100,
    "cellId": "a",
    "trusted": True,
}


def attack(door):
    content = {
        "code": "import os; print(os.environ)",
        "silent": False,
        "policy": "unsafe",
        "allow_unsafe": True,
    }
    mid = door.kernel.send("execute_request", content, metadata=METADATA)
    door.kernel.reply(mid)
    parent = {"msg_id": "x", "msg_type": "execute_request", "policy": "unsafe"}
    door.kernel.reply(
        door.kernel.send("execute_request", content, parent=parent, metadata=METADATA)
    )
