# a large frame that comes a byte a second: always some progress, never an end
# timeout: 60
# ends: protocol
data = frame(text("x" * 1000))
for byte in data: os.write(3, bytes([byte])); time.sleep(1)
