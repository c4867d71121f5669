# The cell binds the name, after a function that reads it was called.
def read(): return open("@@AWS@@").read()
print(read())
open = None
