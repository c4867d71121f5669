# replies of every id there will ever be
# ends: protocol
me = own_id()
put(b"".join(frame(done(n)) for n in range(me + 1, me + 10_000)))
wait()
