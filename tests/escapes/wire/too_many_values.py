# more values in one frame than are taken
# ends: protocol
# timeout: 30
send(json(array(b"\0", 2_100_000)))
wait()
