# __init_subclass__ looks back.
class B:
    def __init_subclass__(cls):
        try: raise ValueError
        except ValueError as e: print("ESCAPED", e.__traceback__.tb_frame)
class C(B): pass
