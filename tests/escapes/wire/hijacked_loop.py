# the main loop answers everything with the same stale reply
# ends: ok
# next: protocol
me = own_id()
send(done(me))
for request in requests():
    if hasattr(request, "source"): send({"type": "began", "id": request.id}); send(done(me))
