# A printer's class changed for all.
class C:
    def _repr_pretty_(self, p, cycle):
        type(p).text = lambda self, t: self.output.write("ESCAPED")
        p.text("c")
C()
# --- cell
[1]
