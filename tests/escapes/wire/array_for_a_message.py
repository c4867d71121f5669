# a message as a list of its values
# ends: protocol
send(["stream", "stdout", "x"])
wait()
