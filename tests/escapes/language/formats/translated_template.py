# A template made by a translation table.
import heapq
print("ESCAPED", "{0.##globals##}".translate({35: "_"}).format(heapq.merge))
