"""P3: positions outside of the code, of other types, in the middle of a pair."""


def attack(door):
    for cursor in (-1, -(10**30), 10**30, 2.5, "3", None, [1], True, {"a": 1}):
        for code in ("import o", "😀.", "a" * 9, None, ["x"]):
            reply = door.ask("complete_request", code=code, cursor_pos=cursor)
            if reply.get("status") not in ("ok", "error"):
                return f"no reply at {cursor!r}"
    return ""


def control(door):
    """A proper position is answered."""
    door.run("apricot = 1")
    return door.ask("complete_request", code="apri", cursor_pos=4)["matches"] == ["apricot"]
