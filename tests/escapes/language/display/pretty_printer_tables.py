# A printer's tables kept and changed.
class C:
    def _repr_pretty_(self, p, cycle):
        p.type_pprinters[int] = lambda o, p, c: p.text("ESCAPED")
        p.singleton_pprinters[id(None)] = lambda o, p, c: p.text("ESCAPED")
        p.text("c")
C()
# --- cell
[1, None]
