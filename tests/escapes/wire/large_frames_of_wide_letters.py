# a text in which one letter makes all others four bytes wide
# ends: any
flood(show("x" * (CAP - 100) + "\U0001f600"), size=CAP)
