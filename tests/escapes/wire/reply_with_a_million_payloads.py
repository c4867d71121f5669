# payloads without end, of every source
# ends: any
# next: ok after protocol
send(done(own_id(), payload=[{"source": s, "data": {"text/plain": "x"}} for s in ("page", "set_next_input", "ask_exit") for _ in range(60_000)]))
