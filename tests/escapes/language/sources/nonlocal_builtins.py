# A nonlocal of the builtins' name.
def f():
    __builtins__ = {}
    def g():
        nonlocal __builtins__
        __builtins__ = {"x": 1}
    g()
    return __builtins__
print("ESCAPED", f())
