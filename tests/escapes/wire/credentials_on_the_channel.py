# passes credentials, and asks for the host's
# ends: any
end = socket.socket(fileno=os.dup(3))
for option in (16, 77, 17):
    try: end.setsockopt(1, option, 1); end.getsockopt(1, option, 100)
    except OSError: pass
try: end.sendmsg([frame(text("x"))], [(socket.SOL_SOCKET, 2, struct.pack("iii", os.getpid(), 0, 0))])
except OSError: pass
