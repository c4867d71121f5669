# __instancecheck__ looks at who asks.
class M(type):
    def __instancecheck__(cls, o):
        try: raise ValueError
        except ValueError as e: print("ESCAPED", e.__traceback__.tb_frame.f_back)
class C(metaclass=M): pass
isinstance(1, C)
