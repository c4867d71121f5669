# serves for itself, and ends cells that it never began
# ends: ok
# next: ok after protocol
send(done(own_id()))
for request in requests():
    if hasattr(request, "source"): send(done(request.id))
