# the first half of a frame, then silence, in a cell with time to spare
# timeout: 60
# ends: protocol
put(frame(text("x" * 1000))[:500])
while True: time.sleep(1)
