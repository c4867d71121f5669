# Packed or not, a path is opened.
import gzip
try:
    print(gzip.open("@@SSH@@", "rt").read())
except OSError as error:
    if "gzip" in str(error):
        print("ESCAPED", error)
