# The same through copy's hooks.
# seen_until: 3.13
import typing, copy
class F(typing.ForwardRef, _root=True):
    def __setstate__(self, state):
        for s in state:
            for k, v in (s or {}).items(): canary(v)
copy.copy(F("1"))
