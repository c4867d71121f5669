# half a million maps in each other
# ends: protocol
send(json(b"\x81\xa1a" * 500_000 + b"\0"))
wait()
