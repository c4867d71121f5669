# serves for itself, blocks interrupts and takes up its next cell
# ends: ok
# next: timeout
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
send(done(own_id()))
for request in requests():
    if hasattr(request, "source"): send({"type": "began", "id": request.id})
