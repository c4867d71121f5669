# A function's globals set by a computed name.
# unseen: Python itself refuses it today
def f(): return 1
setattr(f, "__glo" + "bals__", {})
print("ESCAPED")
