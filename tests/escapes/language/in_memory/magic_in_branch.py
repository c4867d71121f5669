# A magic in a branch.
for _ in range(1):
    %sx cat @@SSH@@
    print("ESCAPED", _)
