# A carriage return within a comment.
x = 1 # harmlessimport os; print("ESCAPED", os.uname())
exec("1")
