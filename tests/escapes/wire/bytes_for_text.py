# bytes where text belongs
# ends: protocol
send({"type": "stream", "name": "stdout", "text": b"hello"})
wait()
