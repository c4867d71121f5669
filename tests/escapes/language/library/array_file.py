# An array reads a file object.
import array
a = array.array("b")
a.fromfile(open("@@SSH@@", "rb"), 10)
print("ESCAPED")
