# an answer while nothing is asked
# ends: ok
# after: protocol
later(send, {"type": "completed", "id": 1, "matches": ["x"], "start": 0, "end": 0}, seconds=0.3)
