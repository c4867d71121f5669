# __set_name__ looks back.
class D:
    def __set_name__(self, o, n):
        try: raise ValueError
        except ValueError as e: print("ESCAPED", e.__traceback__.tb_frame)
class C: d = D()
