# What %timeit -o returns.
r = %timeit -o -n1 -r1 1
for k, v in r.__dict__.items(): canary(v)
print("ESCAPED", r.__init__.__func__.__globals__)
