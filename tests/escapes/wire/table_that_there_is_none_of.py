# a magic that the host shows nothing for
# ends: protocol
send({"type": "show", "what": "undo"})
wait()
