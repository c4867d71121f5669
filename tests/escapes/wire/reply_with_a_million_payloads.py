# payloads without end, of every source
# timeout: 60
# ends: any
# next: ok after protocol
send(done(own_id(), payload=[{"source": s, "data": {"text/plain": "x"}} for s in ("page", "set_next_input", "ask_exit") for _ in range(60_000)]))
