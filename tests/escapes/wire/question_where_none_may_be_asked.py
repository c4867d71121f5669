# a question to a front end that takes none
# ends: protocol
send({"type": "input_request", "id": own_id(), "prompt": "password:"})
wait()
