# a megabyte of noise
# ends: protocol
put(random.Random(7).randbytes(1 << 20))
wait()
