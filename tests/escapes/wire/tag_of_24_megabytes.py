# a message whose tag fills a frame, of letters that take two columns each
# ends: protocol
send({"type": "\u6f22" * ((CAP - 30) // 3)})
wait()
