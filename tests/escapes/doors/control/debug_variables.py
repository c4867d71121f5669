"""P1: the debugger lists variables."""

ALONE = True


CLIENT = {
    "clientID": "t",
    "adapterID": "",
    "pathFormat": "path",
    "linesStartAt1": True,
    "columnsStartAt1": True,
}


def attack(door):
    for channel in ("control", "shell"):
        door.ask(
            "debug_request", channel, type="request", seq=1, command="initialize", arguments=CLIENT
        )
        request = {"type": "request", "seq": 2, "command": "inspectVariables", "arguments": {}}
        reply = door.ask("debug_request", channel, **request)
        if reply.get("success") or "variables" in reply.get("body", {}):
            return True
    return False
