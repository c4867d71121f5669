# Type's own constructor with a function type as base.
# unseen: Python itself refuses it today
F = type(lambda: 0)
C = type("C", (F,), {})
print("ESCAPED", C)
