# The help builtin, which imports whatever is named.
help("this")
print("ESCAPED")
