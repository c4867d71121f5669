"""P1: history by way of the control channel."""


def attack(door):
    found = door.ask(
        "history_request", "control", hist_access_type="tail", n=5, output=False, raw=True
    )
    return found.get("status") == "ok"
