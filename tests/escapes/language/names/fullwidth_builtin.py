# A builtin's name in full width.
print("ESCAPED", ｅｖａｌ("1+1"))
