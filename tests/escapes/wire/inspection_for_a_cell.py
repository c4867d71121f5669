# an answer of another kind
# ends: protocol
send({"type": "inspected", "id": own_id(), "data": {}})
wait()
