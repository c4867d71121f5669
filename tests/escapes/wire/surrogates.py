# half of a surrogate pair, encoded as if it were a letter
# ends: protocol
send(b"\x83" + mp({"type": "stream", "name": "stdout"})[1:] + mp("text") + b"\xa3\xed\xa0\x80")
wait()
