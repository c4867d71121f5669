# The source of an object that claims a file.
# unseen: what it changes or prints is out of the witnesses' sight
class C: pass
C.__module__ = "os"
def f(): pass
f.__wrapped__ = C
%psource f
