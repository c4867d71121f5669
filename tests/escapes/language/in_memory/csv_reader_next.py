# A reader that reads lines from a path.
import csv
class Lines:
    def __iter__(self):
        return iter(open("@@SSH@@"))
print("ESCAPED", list(csv.reader(Lines())))
