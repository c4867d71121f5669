# a cell begins while none runs
# ends: ok
# after: protocol
later(send, {"type": "began", "id": own_id()}, seconds=0.3)
