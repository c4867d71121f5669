# a completion reply with positions that do not exist
# ask: complete
# ends: ok
send(done(own_id()))
for request in asked():
    send({"type": "completed", "id": request.id, "matches": ["x"], "start": -5, "end": 2**63 - 1})
