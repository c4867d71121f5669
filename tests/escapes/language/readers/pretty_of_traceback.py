# IPython's printer reads every attribute of an object without a repr, for a printer of the cell's.
import io
found = []
class Shown:
    def _repr_pretty_(self, printer, cycle): found.append(type(printer))
display(Shown())
real = found.pop()
class Printer(real):
    def pretty(self, obj): found.append(obj)
try: 1 / 0
except Exception as error: traceback = error.__traceback__
real.pretty(Printer(io.StringIO(), verbose=True), traceback)
for each in found: canary(each)
