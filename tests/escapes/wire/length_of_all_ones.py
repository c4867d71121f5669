# a frame that announces 4 GiB
# ends: protocol
put(b"\xff\xff\xff\xff" + b"x" * 1000)
wait()
