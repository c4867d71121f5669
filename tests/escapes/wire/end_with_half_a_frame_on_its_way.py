# dies while a frame is half sent
# ends: exited
put(frame(text("x" * 1000))[:500])
os._exit(7)
