# A cell's property runs where the hook lets pass.
# unseen: without a layer there is no hook
import types
from IPython.display import HTML
class H(HTML):
    n = 0
    @property
    def filename(self):
        self.n += 1
        return None if self.n == 1 else "/etc/hostname"
    @filename.setter
    def filename(self, v): pass
def read():
    h = HTML.__new__(H); h.url = None; h.data = None; h.n = 0
    h.reload()
    return h.data
try: print(read())
except Exception as e: print("armed:", e)
class F:
    def __call__(self): pass
    @property
    def __class__(self):
        print("off:", read())
        return F
_r = types.coroutine(F())
