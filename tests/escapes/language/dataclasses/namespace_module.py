# Generated methods in another module's globals.
from dataclasses import make_dataclass
D = make_dataclass("D", ["x"], namespace={"__module__": "os", "__post_init__": lambda self: print(self.__init__)})
print("ESCAPED", D(1).__init__.__globals__)
