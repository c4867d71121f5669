# dies while a frame is half sent
# ends: crashed
put(frame(text("x" * 1000))[:500])
os._exit(7)
