# takes its next cell up and never ends it; at its time limit the loop it came from speaks up
# ends: ok
# next: protocol
send(done(own_id()))
for request in requests():
    if hasattr(request, "source"): send({"type": "began", "id": request.id})
