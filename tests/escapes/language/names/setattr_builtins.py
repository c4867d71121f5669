# A function's builtins set by a computed name.
# unseen: Python itself refuses it today
def f(): return open
setattr(f, "__built" + "ins__", {"open": 1})
print("ESCAPED")
