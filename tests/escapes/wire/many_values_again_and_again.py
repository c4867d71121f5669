# frames that hold just as many values as are taken, of the kind that costs most
# ends: any
put(frame(json(array(b"\x81\xa1a\x80", 220_000))) * 4)
