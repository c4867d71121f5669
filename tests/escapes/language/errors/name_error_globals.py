# NameError of a library function.
try: undefined
except NameError as e: print("ESCAPED", e.name, e.__traceback__.tb_frame.f_builtins)
