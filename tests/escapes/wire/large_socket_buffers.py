# the largest buffers it can have on its side
# ends: any
end = socket.socket(fileno=os.dup(3))
for option in (socket.SO_SNDBUF, socket.SO_RCVBUF, 32, 33):
    try: end.setsockopt(socket.SOL_SOCKET, option, 1 << 30)
    except OSError: pass
flood(text("x" * 60_000), seconds=1.0)
