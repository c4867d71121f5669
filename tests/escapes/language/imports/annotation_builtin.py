# An annotation.
# seen_until: 3.13
x: open = 1
print("ESCAPED", __annotations__["x"]("@@SSH@@").read())
