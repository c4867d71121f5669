# The file that the session says it is, read for comments.
# unseen: Python 3.13 reads the file and says nothing of it
__file__ = "@@SSH@@"
class A:
    pass
try:
    help(A)
except SyntaxError as error:
    print("ESCAPED", error)
