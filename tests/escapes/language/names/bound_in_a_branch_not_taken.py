# The name is bound in a branch that is not taken, and after it is read.
if not print:
    open = print
print(open("@@AWS@@").read())
open = print
