# as many texts of one wide letter as a frame may hold: the dearest of all values
# ends: any
put(frame(json(array(b"\xa4\xf0\x9f\x98\x80", 1_990_000))) * 4)
