# Inside a comprehension inside a lambda.
print("ESCAPED", (lambda: [o for o in (open,)])()[0]("@@SSH@@").read())
