# A default value within a lambda.
f = lambda o=(lambda: open): o()
print("ESCAPED", f()("@@SSH@@").read())
