# a guest asks for a guest
# ends: protocol
send({"type": "fork", "id": 7, "seed": b"x"})
wait()
