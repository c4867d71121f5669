# A guard's behaviour changed from outside.
# unseen: what it attacks is the guard itself
hasattr.__kwdefaults__ = {"x": 1}
hasattr.__defaults__ = (1,)
print("ESCAPED")
