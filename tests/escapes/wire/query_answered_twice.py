# two answers to one question
# ask: complete
# ends: ok
# after: protocol
send(done(own_id()))
for request in asked():
    for _ in range(2): send({"type": "completed", "id": request.id, "matches": [], "start": 0, "end": 0})
