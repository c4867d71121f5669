# a completion reply of a million matches
# timeout: 60
# ask: complete
# ends: ok
# next: ok after protocol
send(done(own_id()))
for request in asked():
    send({"type": "completed", "id": request.id, "matches": ["x" * 8] * 1_000_000, "start": 0, "end": 2**31 - 1, "types": [{"a": "b"}] * 100_000})
