# The guards' own defaults.
# unseen: what it attacks is the guard itself
print("ESCAPED" if getattr.__defaults__ or print.__self__ else "")
