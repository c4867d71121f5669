# Bytecode of one's choice.
def f(): return 1
f.__code__ = f.__code__.replace(co_names=("open",))
print("ESCAPED")
