"""P2: the debugger lists modules with their paths."""

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
        request = {"type": "request", "seq": 2, "command": "modules", "arguments": {}}
        reply = door.ask("debug_request", channel, **request)
        if "modules" in reply.get("body", {}):
            return True
    return False
