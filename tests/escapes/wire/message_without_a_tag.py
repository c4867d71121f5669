# fields, but of what?
# ends: protocol
send({"name": "stdout", "text": "x"})
wait()
