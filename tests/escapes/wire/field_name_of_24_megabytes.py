# a field whose name fills a frame: said whole, it would be wrapped and published several times
# ends: protocol
send({"type": "clear", "x" * (CAP - 30): 1})
wait()
