"""P3: comm messages with parts of other types, nested, huge or missing."""

ODD = (None, 7, "x", [], {}, {"a": [[[[[[]]]]]]}, "a" * 100_000)


def attack(door):
    for kind in ("comm_open", "comm_msg", "comm_close"):
        for value in ODD:
            for content in (
                {},
                {"comm_id": value, "target_name": value, "data": value, "target_module": value},
            ):
                door.kernel.send(kind, content, metadata={"x": value}, buffers=[b"", b"x" * 1_000])
    mid = door.kernel.send("comm_info_request", {"target_name": ["x"]})
    return door.kernel.reply(mid)["content"]["status"] != "ok"


def control(door):
    """The list of comms is answered."""
    return door.ask("comm_info_request").get("status") == "ok"
