# A module that opens.
import tokenize
print("ESCAPED", tokenize.open("@@SSH@@").read())
