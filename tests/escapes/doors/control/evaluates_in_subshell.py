"""P1: a cell for a made-up subshell is looked at like any other."""

ALONE = True


def attack(door):
    kernel = door.kernel
    made = door.ask("create_subshell_request", "control").get("subshell_id", "made-up")
    header = kernel.session.msg_header("execute_request") | {"subshell_id": made}
    code = "import os; print(os.environ['CANARY'])"
    kernel.reply(kernel.send("execute_request", {"code": code}, header=header))
