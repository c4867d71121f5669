# Inside an f-string, in a nested spec.
print(f"{1:{open('@@SSH@@').read()}}")
