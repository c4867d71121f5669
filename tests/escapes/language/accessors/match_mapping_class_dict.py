# A mapping pattern over a class's namespace.
match type(lambda: 0).__dict__:
    case {"__globals__": g}: print("ESCAPED", g)
