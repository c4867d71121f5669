# a question while no cell runs
# ends: ok
# after: protocol
later(send, {"type": "input_request", "id": own_id(), "prompt": "password:"}, seconds=0.3)
