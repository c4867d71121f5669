# A traceback copied.
# unseen: Python itself refuses it today
import copy
try: 1/0
except ZeroDivisionError as e: t = copy.copy(e)
print("ESCAPED", t.__traceback__ or e.__traceback__.tb_frame)
