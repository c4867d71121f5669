# a list of a hundred thousand comms that were never opened
# ask: comm_info
# ends: ok
# next: ok after protocol
send(done(own_id()))
for request in requests():
    send({"type": "comms", "id": request.id, "comms": {f"{n}": "x" * 100 for n in range(100_000)}})
