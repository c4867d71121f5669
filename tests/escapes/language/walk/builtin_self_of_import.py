# The guarded import is a function with globals.
def f():
    import json
    return json
print("ESCAPED", f.__builtins__)
