# everything that it sends, sent a hundred times: a second end may be read before the first is answered
# ends: any
# after: protocol
channel = server()._channel
real = channel.send
def again(message):
    for _ in range(100): real(message)
channel.send = again
print("x")
