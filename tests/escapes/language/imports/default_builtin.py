# A default value.
def f(o=open): return o
print("ESCAPED", f()("@@SSH@@").read())
