# The slot of a function's module.
d = type(lambda: 0).__dict__.get("__globals__") or type(lambda: 0).__globals__
print("ESCAPED", d)
