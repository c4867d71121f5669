# A name with escapes.
import heapq
print("ESCAPED", getattr(heapq.merge, "\x5f\u005f\N{LATIN SMALL LETTER G}lobals__"))
