# A library's failed lookup keeps the module it looked in.
# unseen: what it reaches depends on what else was imported
import hashlib
try:
    hashlib.new("nothing")
except ValueError as e:
    while e is not None:
        m = getattr(e, "obj", None)
        if type(m) is type(hashlib): print("ESCAPED", m)
        e = e.__context__
