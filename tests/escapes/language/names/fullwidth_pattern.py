# A class pattern's keyword in full width.
import heapq
match heapq.merge:
    case object(__ｇlobals__=g): print("ESCAPED", g)
