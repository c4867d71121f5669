# A mapping proxy is merged.
d = type(lambda: 0).__dict__ | {}
print("ESCAPED", d["__globals__"])
