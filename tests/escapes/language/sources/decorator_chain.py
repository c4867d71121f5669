# Decorators that evaluate.
@exec
@(lambda f: "print('ESCAPED')")
def f(): pass
