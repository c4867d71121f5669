# __class__ assigned.
# unseen: Python itself refuses it today
def f(): pass
f.__class__ = type("X", (), {})
print("ESCAPED")
