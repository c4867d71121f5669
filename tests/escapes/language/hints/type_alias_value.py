# A type alias that is evaluated late.
# python: 3.12
type X = __import__("os").environ
print("ESCAPED", X.__value__)
