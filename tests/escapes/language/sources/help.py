# The interactive help.
# unseen: Python 3.11 refuses it
help("modules")
print("ESCAPED", help)
