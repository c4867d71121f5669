# four threads write good frames in pieces, so that none arrives whole
# ends: protocol
def write():
    while True:
        for byte in frame(text("x" * 50)): os.write(3, bytes([byte]))
for _ in range(4): threading.Thread(target=write, daemon=True).start()
wait()
