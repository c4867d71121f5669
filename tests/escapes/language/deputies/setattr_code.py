# Code assigned by a computed name.
def a(): return 1
def b(): return 2
setattr(a, "__co" + "de__", getattr(b, "__co" + "de__"))
print("ESCAPED")
