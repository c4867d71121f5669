# What the shell is to do when it ends, among the finalizers of cells.
import weakref
for finalizer in list(weakref.finalize._registry):
    manager = finalizer.peek()[0]
    names = manager.shell.user_ns["__builtins__"]
    print("ESCAPED", type(manager), len(vars(names) if type(names) is type(weakref) else names))
