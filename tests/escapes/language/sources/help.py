# The interactive help.
# unseen: Python 3.11 refuses it
help("this")
print("ESCAPED", help)
