# 1.0 where a whole number belongs
# ends: protocol
send({"type": "done", "id": own_id() + 0.5})
wait()
