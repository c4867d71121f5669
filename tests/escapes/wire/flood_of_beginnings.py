# begins without end
# ends: protocol
flood({"type": "began", "id": own_id()})
wait()
