# The same with a global statement.
def f():
    global __builtins__
    __builtins__ = {}
f()
print("ESCAPED")
done = True
