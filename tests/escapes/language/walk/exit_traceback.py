# __exit__ receives the traceback.
class C:
    def __enter__(self): return self
    def __exit__(self, a, b, tb):
        print("ESCAPED", type(tb).__dict__["tb_frame"].__get__(tb))
with C(): 1/0
