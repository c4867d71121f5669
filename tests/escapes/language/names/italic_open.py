# A builtin's name in mathematical letters.
print("ESCAPED", 𝘰𝘱𝘦𝘯("@@SSH@@").read())
