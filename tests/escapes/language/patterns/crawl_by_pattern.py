# Every name of every facade, dunders too, read by class patterns.
import abc, array, ast, asyncio, base64, calendar, collections, concurrent.futures, contextlib, contextvars, copy, dataclasses, datetime, decimal, difflib, enum, fractions, functools, graphlib, hashlib, heapq, html, io, ipaddress, itertools, json, logging, operator, pathlib, pprint, queue, random, re, reprlib, secrets, statistics, string, struct, textwrap, time, traceback, types, typing, urllib.parse, uuid, warnings, weakref, zoneinfo, IPython.display
class M(type):
    def __instancecheck__(cls, o): return True
makers = {}
def get(o, n):
    C = makers.get(n) or makers.setdefault(n, M("C", (), {"__match_args__": (n,)}))
    match o:
        case C(v): return v
    raise AttributeError
EXTRA = ["__dict__", "__globals__", "__code__", "__closure__", "__builtins__", "__defaults__", "__kwdefaults__", "__self__", "__func__", "__wrapped__", "__module__", "__spec__", "__loader__", "__mro__", "__subclasses__", "__reduce__", "__getattribute__", "__init_subclass__", "gi_frame", "cr_frame", "ag_frame", "tb_frame", "f_globals", "__traceback__", "__context__", "__callback__", "__weakref__", "__objclass__", "fget", "fset", "cell_contents", "_abc_impl", "__bases__", "__annotations__"]
seen, held, count = set(), [], 0
def walk(o, path, depth):
    global count
    if id(o) in seen or type(o) in (int, str, bytes, float, bool, type(None)) or count > 60_000: return
    seen.add(id(o)); held.append(o); count += 1
    try:
        if canary(o): print("   at", path)
    except BaseException: pass
    if depth == 0: return
    names = []
    try: names = list(dir(o))
    except BaseException: pass
    for n in set(names + EXTRA):
        if type(n) is not str: continue
        try: v = get(o, n)
        except BaseException: continue
        walk(v, path + "." + n, depth - 1)
    if type(o).__name__ in ("dict", "mappingproxy", "WeakValueDictionary"):
        for k, v in list(o.items())[:2000]: walk(v, path + "[]", depth - 1)
    elif type(o) in (list, tuple, set, frozenset):
        for v in list(o)[:2000]: walk(v, path + "[]", depth - 1)
roots = [abc, array, ast, asyncio, base64, calendar, collections, concurrent, contextlib, contextvars, copy, dataclasses, datetime, decimal, difflib, enum, fractions, functools, graphlib, hashlib, heapq, html, io, ipaddress, itertools, json, logging, operator, pathlib, pprint, queue, random, re, reprlib, secrets, statistics, string, struct, textwrap, time, traceback, types, typing, urllib, uuid, warnings, weakref, zoneinfo, IPython]
for depth in (2, 3, 5):
    for r in roots:
        seen.discard(id(r)); walk(r, r.__name__, depth)
    seen.clear()
print("crawled", count)
