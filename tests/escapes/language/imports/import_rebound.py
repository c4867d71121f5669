# The import function replaced.
def __import__(*a): pass
print("ESCAPED")
