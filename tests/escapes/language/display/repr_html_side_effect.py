# A representation that opens.
# unseen: Python itself refuses it today
class C:
    def _repr_html_(self): return open("@@SSH@@").read()
C()
