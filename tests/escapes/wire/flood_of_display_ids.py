# a new display id with every message
# ends: any
end = time.monotonic() + 2
while time.monotonic() < end:
    put(b"".join(frame(show("x", display_id=f"{random.random()}")) for _ in range(2000)))
