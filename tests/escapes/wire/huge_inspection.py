# an inspection reply of 23 MB
# ask: inspect
# ends: ok
# next: ok after protocol
send(done(own_id()))
for request in requests():
    send({"type": "inspected", "id": request.id, "data": {"text/plain": "x" * (23 << 20), "text/html": "<script>"}})
