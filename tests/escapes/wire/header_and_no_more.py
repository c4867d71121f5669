# three bytes of a header
# timeout: 60
# ends: protocol
put(b"\0\0\0")
while True: time.sleep(1)
