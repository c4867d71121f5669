"""P1: an expression of a subshell's cell is judged as any other."""

ALONE = True


def attack(door):
    kernel = door.kernel
    made = door.ask("create_subshell_request", "control").get("subshell_id", "made-up")
    header = kernel.session.msg_header("execute_request") | {"subshell_id": made}
    asked = {"it": "__import__('os').environ['CANARY']"}
    reply = kernel.reply(
        kernel.send("execute_request", {"code": "1", "user_expressions": asked}, header=header)
    )
    return reply["content"]["user_expressions"]["it"]["status"] == "ok"
