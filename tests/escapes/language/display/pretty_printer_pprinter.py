# A printer function out of the table.
class C:
    def _repr_pretty_(self, p, cycle):
        for f in p.type_pprinters.values(): print("ESCAPED", f.__globals__)
C()
