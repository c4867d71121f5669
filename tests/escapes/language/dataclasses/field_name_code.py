# An annotation's key that is code, not a name.
# unseen: Python itself refuses it today
from dataclasses import dataclass
class C: pass
C.__annotations__ = {"x=print('ESC' 'APED'), y": int}
try: dataclass(C)()
except Exception as e: raise
