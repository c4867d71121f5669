# an answer of another kind
# ends: protocol
send({"type": "comms", "id": own_id(), "comms": {"a": "b"}})
wait()
