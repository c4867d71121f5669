# The same in a package that is a facade.
from json import scanner
print("ESCAPED", scanner)
