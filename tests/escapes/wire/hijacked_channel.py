# the channel object says garbage from now on
# ends: protocol
server()._channel._sock.sendall(b"")
from cellblock.wire import frames
frames.encode = lambda message: bytearray(b"\0\0\0\1\xc1")
from cellblock.guest import channel
channel.frames.encode = frames.encode
from IPython.display import display
display("x")
wait()
