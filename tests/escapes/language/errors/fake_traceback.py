# A traceback of our own with real parts asked for.
import traceback
class Code: co_filename = "x"; co_name = "y"; co_qualname = "y"; co_firstlineno = 1; co_positions = lambda self: iter([(1, 1, 1, 1)])
class Frame:
    f_code = Code(); f_lineno = 1; f_locals = {}
    @property
    def f_globals(self):
        try: raise ValueError
        except ValueError as e: return {"x": e.__traceback__.tb_frame.f_back.f_globals}
class Tb: tb_frame = Frame(); tb_lineno = 1; tb_lasti = 0; tb_next = None
traceback.print_exception(ValueError, ValueError("v"), Tb())
print("ESCAPED", Frame().f_globals)
