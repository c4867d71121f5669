# A decorator without a call.
@exec
@lambda c: "print('ESCAPED')"
class C: pass
print("ESCAPED")
