# The function under a class method of the library.
import datetime, zoneinfo, fractions
print("ESCAPED", fractions.Fraction.from_float.__func__.__globals__)
