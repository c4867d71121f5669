# WeakMethod hands out what a library's method is bound to.
# unseen: it gets an object of the library, no witness of ours
import logging, weakref
w = weakref.WeakMethod(logging.getLogger().info)
print(weakref.ref.__call__(w), w._func_ref())   # __self__ and __func__ of a library's method
