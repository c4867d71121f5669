# "1" where a number belongs
# ends: protocol
send({"type": "began", "id": str(own_id())})
wait()
