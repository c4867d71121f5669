# an id of 2**64 - 1
# ends: protocol
send(body({"type": "done"}, "id", b"\xcf" + b"\xff" * 8))
wait()
