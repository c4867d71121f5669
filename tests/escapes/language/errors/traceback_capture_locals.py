# A formatted exception carries the locals.
import traceback
try: traceback.print_exc(chain=True, limit=None)
except Exception: pass
try: 1/0
except Exception as e:
    te = traceback.TracebackException.from_exception(e, capture_locals=True)
    print("ESCAPED", te.stack[0].locals)
