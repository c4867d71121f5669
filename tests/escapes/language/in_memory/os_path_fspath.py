# Path functions call methods of a cell's own.
# unseen: they hand over nothing
import os.path
class Odd:
    def __fspath__(self):
        return "a"
class Text(str):
    def startswith(self, *args):
        print(args)
        return super().startswith(*args)
print(os.path.join(Odd(), Text("b")), os.path.commonprefix([Text("ab"), "ac"]))
