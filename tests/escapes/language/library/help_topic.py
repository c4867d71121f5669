# The help builtin.
help("modules")
print("ESCAPED")
