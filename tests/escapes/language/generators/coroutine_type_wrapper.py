# Types.coroutine's wrapper of an object that says it is a generator.
import types, collections.abc
class G(collections.abc.Generator):
    def send(self, v): raise StopIteration
    def throw(self, *a): raise StopIteration
    gi_frame = gi_code = gi_running = gi_yieldfrom = None
w = types.coroutine(lambda: G())()
print("ESCAPED", type(w).send.__globals__)
