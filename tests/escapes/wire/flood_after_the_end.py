# goes on flooding while no cell runs, in whole frames
# ends: ok
from cellblock.wire.messages import Stream
def pour(channel=server()._channel, end=time.monotonic() + 3):
    while time.monotonic() < end: channel.send(Stream(name="stdout", text="x" * 60_000))
threading.Thread(target=pour, daemon=True).start()
