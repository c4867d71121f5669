"""P3: a second front end answers a question that the first was asked."""

from support.client import Client


def attack(door):
    mid = door.kernel.execute_send("input('Name? ')", allow_stdin=True)
    question = door.kernel.recv("stdin")
    with Client(door.kernel.info) as other:
        other.session.send(other.stdin, "input_reply", {"value": "stolen"}, parent=question)
        if door.kernel.shell.poll(700):
            door.kernel.reply(mid)
            return "stolen" in str(door.kernel.until_idle(mid))
    door.kernel.send("input_reply", {"value": "mine"}, "stdin")
    return door.kernel.reply(mid)["content"]["status"] != "ok"
