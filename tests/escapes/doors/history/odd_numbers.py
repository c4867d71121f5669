"""P3: counts and positions of other sizes and types."""

NUMBERS = (-1, -(10**30), 10**30, 2.5, "5", None, True, [1])


def attack(door):
    for n in NUMBERS:
        for kind in ("tail", "search", "range", "none", None, [1]):
            content = dict.fromkeys(("n", "session", "start", "stop", "pattern"), n)
            reply = door.ask("history_request", hist_access_type=kind, output=False, **content)
            if reply.get("status") != "ok":
                return f"{kind} {n!r}: {reply}"
    return ""


def control(door):
    """A proper request has an answer."""
    door.run("apricot = 1")
    return "apricot" in door.history("tail", n=1)
