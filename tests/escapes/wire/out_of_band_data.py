# bytes beside the stream
# ends: any
end = socket.socket(fileno=os.dup(3))
for _ in range(100):
    try: end.send(b"x", socket.MSG_OOB)
    except OSError: break
