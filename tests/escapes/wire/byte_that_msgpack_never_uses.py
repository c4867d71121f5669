# 0xc1 alone
# ends: protocol
send(b"\xc1")
wait()
