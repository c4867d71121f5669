"""P1: a header that names a subshell gets past no running cell."""

ALONE = True


def attack(door):
    kernel = door.kernel
    made = door.ask("create_subshell_request", "control").get("subshell_id", "made-up")
    first = kernel.execute_send("import time\ntime.sleep(1)")
    header = kernel.session.msg_header("execute_request") | {"subshell_id": made}
    second = kernel.send("execute_request", {"code": "1"}, header=header)
    order = [kernel.recv("shell")["parent_header"]["msg_id"] for _ in range(2)]
    return order == [second, first]
