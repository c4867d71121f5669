# An annotation.
x: open = 1
print("ESCAPED", __annotations__["x"]("@@SSH@@").read())
