# an inspection reply of 23 MB
# timeout: 60
# ask: inspect
# ends: ok
# next: ok after protocol
send(done(own_id()))
for request in asked():
    send({"type": "inspected", "id": request.id, "data": {"text/plain": "x" * (23 << 20), "text/html": "<script>"}})
