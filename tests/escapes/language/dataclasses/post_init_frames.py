# __post_init__ looks back into the generated method.
from dataclasses import dataclass
@dataclass
class D:
    x: int
    def __post_init__(self):
        try: 1/0
        except ZeroDivisionError as e: print("ESCAPED", e.__traceback__.tb_frame.f_back)
D(1)
