# A weak proxy of a generator.
import weakref
g = (x for x in ())
print("ESCAPED", getattr(weakref.proxy(g), "gi_" + "frame"))
