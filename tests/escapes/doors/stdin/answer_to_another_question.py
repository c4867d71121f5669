"""P3: a late answer, which names the question it belongs to, answers the next one."""


def attack(door):
    kernel = door.kernel
    mid = kernel.execute_send("input('first')\ninput('second')", allow_stdin=True)
    first = kernel.recv("stdin")
    kernel.session.send(kernel.stdin, "input_reply", {"value": "one"}, parent=first)
    kernel.recv("stdin")
    kernel.session.send(kernel.stdin, "input_reply", {"value": "stale"}, parent=first)
    if kernel.shell.poll(700):
        kernel.reply(mid)
        return "stale" in str(kernel.until_idle(mid))
    kernel.send("input_reply", {"value": "two"}, "stdin")
    kernel.reply(mid)
    return "'two'" not in str(kernel.until_idle(mid))
