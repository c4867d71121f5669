# __exit__ walks its traceback.
class C:
    def __enter__(self): return self
    def __exit__(self, t, e, tb):
        while tb: print("ESCAPED", getattr(tb, "tb_fr" + "ame")); tb = tb.tb_next
        return True
with C(): 1/0
