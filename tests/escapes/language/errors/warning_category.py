# A warning's category with a check of its own.
import warnings
class M(type):
    def __subclasscheck__(cls, c): print("ESCAPED", cls.__subclasses__()); return True
class W(UserWarning, metaclass=M): pass
warnings.warn("x", W)
warnings.filterwarnings("error", category=W); warnings.warn("x", W)
