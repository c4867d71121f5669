# a tag that nobody knows
# ends: protocol
send({"type": "sudo", "command": "id"})
wait()
