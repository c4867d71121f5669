# a million arrays in each other
# ends: protocol
send(json(b"\x91" * 1_000_000 + b"\0"))
wait()
