# A context manager's generator by pattern.
import contextlib
@contextlib.contextmanager
def cm(): yield
c = cm()
print("ESCAPED", c.gen.gi_frame)
