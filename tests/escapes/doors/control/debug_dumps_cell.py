"""P1: the debugger writes code to a file for later."""

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
            "command": "dumpCell",
            "arguments": {"code": "import os"},
        }
        reply = door.ask("debug_request", channel, **request)
        if "sourcePath" in str(reply):
            return True
    return False
