# user_expressions that nobody asked for
# timeout: 60
# ends: any
# next: ok after protocol
send(done(own_id(), user_expressions={str(n): {"status": "ok", "data": {"text/plain": "x" * 20}} for n in range(200_000)}))
