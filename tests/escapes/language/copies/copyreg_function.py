# The function that copying names.
class C: pass
f = C().__reduce_ex__(2)[0]
print("ESCAPED", f.__globals__)
