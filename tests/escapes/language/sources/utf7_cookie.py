# A coding cookie that would hide code.
# -*- coding: utf-7 -*-
x = 1 #+AAo-import os; print('ESCAPED', os.uname())
print(x)
print("ESCAPED", eval)
