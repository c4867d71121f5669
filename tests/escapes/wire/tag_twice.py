# two tags in one message
# ends: protocol
send(b"\x83" + mp("type") + mp("began") + mp("type") + mp("done") + mp("id") + mp(own_id() + 9))
wait()
