# a message that ends before its last field does
# ends: protocol
send(mp(text("hello"))[:-3])
wait()
