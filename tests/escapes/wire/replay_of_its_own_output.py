# everything that it sends, sent a hundred times
# ends: ok
# after: protocol
channel = server()._channel
real = channel.send
def again(message):
    for _ in range(100): real(message)
channel.send = again
print("x")
