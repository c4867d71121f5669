# The C module's attributes.
# unseen: Python itself refuses it today
import decimal
print("ESCAPED", decimal._decimal)
