# text that is none
# ends: protocol
send(mp({"type": "stream", "name": "stdout"})[:1].replace(b"\x82", b"\x83") + mp({"type": "stream", "name": "stdout"})[1:] + mp("text") + b"\xa2\xff\xfe")
wait()
