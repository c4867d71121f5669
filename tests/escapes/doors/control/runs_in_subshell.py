"""P1: a cell of a subshell is judged as any other, while one runs beside it."""

ALONE = True


def attack(door):
    kernel = door.kernel
    made = door.ask("create_subshell_request", "control").get("subshell_id", "made-up")
    kernel.execute_send("import time\ntime.sleep(1)")
    header = kernel.session.msg_header("execute_request") | {"subshell_id": made}
    code = "import os; print(os.environ['CANARY'])"
    kernel.reply(kernel.send("execute_request", {"code": code}, header=header))
