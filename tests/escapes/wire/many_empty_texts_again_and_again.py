# as many short texts as a frame may hold
# ends: any
put(frame(json(array(b"\xa2ab", 1_900_000))) * 4)
