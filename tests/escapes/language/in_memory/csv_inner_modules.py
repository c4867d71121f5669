# Modules that csv imported.
import csv
canary(csv.re)
canary(csv.io)
