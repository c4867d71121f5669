# A type comment with code in it.
x = [] # type: __import__("os").environ
print("ESCAPED", __import__)
