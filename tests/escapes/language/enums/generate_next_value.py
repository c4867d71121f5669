# _generate_next_value_ looks at its caller.
import enum
class E(enum.Enum):
    def _generate_next_value_(name, start, count, last):
        try: 1/0
        except ZeroDivisionError as e: return e.__traceback__.tb_frame.f_back.f_globals
    A = enum.auto()
print("ESCAPED", E.A.value)
