# a comm message that is an execute_request
# ends: protocol
send({"type": "comm_out", "kind": "execute_request", "content": {"comm_id": "a", "data": {}}})
wait()
