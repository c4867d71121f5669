# A loop that would bind the name has nothing to go through.
for open in (): pass
print(open("@@AWS@@").read())
