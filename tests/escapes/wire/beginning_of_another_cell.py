# a cell to come begins
# ends: protocol
send({"type": "began", "id": own_id() + 1})
wait()
