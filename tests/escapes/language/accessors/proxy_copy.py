# A mapping proxy is copied.
d = type(lambda: 0).__dict__.copy()
print("ESCAPED", d["__globals__"])
