# A traceback thrown into a generator.
def g():
    try: yield
    except ValueError as e: yield e.__traceback__.tb_frame
try: 1/0
except ZeroDivisionError as e: tb = e.__traceback__
x = g(); next(x)
print("ESCAPED", x.throw(ValueError, ValueError(), tb))
