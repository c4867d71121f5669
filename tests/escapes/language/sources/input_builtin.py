# Input() runs nothing.
# unseen: Python itself refuses it today
print("ESCAPED", input.__globals__)
