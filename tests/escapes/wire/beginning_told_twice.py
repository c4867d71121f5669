# the same cell begins again
# ends: protocol
send({"type": "began", "id": own_id()})
wait()
