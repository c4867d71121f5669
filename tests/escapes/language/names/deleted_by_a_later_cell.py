# What one cell binds, a later one deletes, and a function finds what was behind it.
def open(path): return path
def read(): return open("@@AWS@@").read()
# --- cell
del open
# --- cell
print(read())
