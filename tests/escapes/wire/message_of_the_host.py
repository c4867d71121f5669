# what the host says to a guest, said by a guest
# ends: protocol
send({"type": "execute", "id": 1, "source": "x", "raw": "x", "execution_count": 1})
wait()
