# An error that names a file to quote.
# unseen: it ends the process or breaks a module, and gets nothing
import traceback
try: raise SyntaxError("x", ("@@SSH@@", 2, 1, None))
except SyntaxError: traceback.print_exc()
