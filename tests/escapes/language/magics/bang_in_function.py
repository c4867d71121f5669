# A shell escape in a function's body.
def f():
    x = !uname -r | rev
    return x
print(f())
