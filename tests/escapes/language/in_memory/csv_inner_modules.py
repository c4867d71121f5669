# Modules that csv imported.
# seen_until: 3.13
import csv
canary(csv.re)
canary(csv.io)
