# Everything that dots reach from every allowed module and builtin.
MODULES = "IPython.display abc array ast asyncio base64 binascii bisect calendar cmath collections collections.abc colorsys concurrent.futures contextlib contextvars copy dataclasses datetime decimal difflib enum fractions functools graphlib hashlib heapq hmac html io ipaddress itertools json json.decoder json.encoder keyword logging math numbers operator pathlib pprint queue random re reprlib secrets statistics string struct textwrap time traceback types typing unicodedata urllib.parse uuid warnings weakref zlib zoneinfo"
import IPython.display, abc, array, ast, asyncio, base64, binascii, bisect, calendar, cmath, collections, collections.abc, colorsys, concurrent.futures, contextlib, contextvars, copy, dataclasses, datetime, decimal, difflib, enum, fractions, functools, graphlib, hashlib, heapq, hmac, html, io, ipaddress, itertools, json, json.decoder, json.encoder, keyword, logging, math, numbers, operator, pathlib, pprint, queue, random, re, reprlib, secrets, statistics, string, struct, textwrap, time, traceback, types, typing, unicodedata, urllib.parse, uuid, warnings, weakref, zlib, zoneinfo
roots = [IPython, abc, array, ast, asyncio, base64, binascii, bisect, calendar, cmath, collections, colorsys, concurrent, contextlib, contextvars, copy, dataclasses, datetime, decimal, difflib, enum, fractions, functools, graphlib, hashlib, heapq, hmac, html, io, ipaddress, itertools, json, keyword, logging, math, numbers, operator, pathlib, pprint, queue, random, re, reprlib, secrets, statistics, string, struct, textwrap, time, traceback, types, typing, unicodedata, urllib, uuid, warnings, weakref, zlib, zoneinfo]
@contextlib.contextmanager
def cm(): yield
async def co(): pass
def gen(): yield
async def agen(): yield
def fn(a, b=1, *c, d=2): return a
class Cls:
    x = 1
    @property
    def p(self): return 1
    @classmethod
    def cm(cls): pass
    @staticmethod
    def sm(): pass
@dataclasses.dataclass
class Data:
    x: int = 1
class Colour(enum.Enum):
    RED = 1
def err(f):
    try: f()
    except BaseException as e: return e
redirect = contextlib.redirect_stdout(io.StringIO())
redirect.__enter__(); redirect.__exit__(None, None, None)
lock = asyncio.Lock()
c = co()
fut = asyncio.get_running_loop().create_future()
pool = concurrent.futures.ThreadPoolExecutor(1)
pf = pool.submit(int)
pf.result()
log = logging.getLogger("a.b")
handler = logging.StreamHandler()
log.addHandler(handler)
instances = [print, len, getattr, setattr, hasattr, delattr, display, canary, type, object, super, property, cm(), c, gen(), agen(), fn, Cls, Cls(), Cls().cm, Data, Data(), Colour, Colour.RED,
  err(lambda: 1/0), err(lambda: undefined), err(lambda: Cls().y), err(lambda: json.loads("{")), err(lambda: hashlib.new("zz")), err(lambda: json.codecs), err(lambda: getattr(fn, "__glo" + "bals__")),
  err(lambda: zoneinfo.ZoneInfo("No/Where")), err(lambda: IPython.display.HTML(filename="x")), err(lambda: typing.get_type_hints(fn, 3)), err(lambda: uuid.UUID("x")), err(lambda: ipaddress.ip_address("x")),
  redirect, lock, fut, pool, pf, list(pool._threads)[0], log, handler, logging.Formatter(), logging.Filter(), log.makeRecord("a", 10, "f", 1, "m", (), None), log.manager, log.root,
  asyncio.get_running_loop(), type(asyncio.get_running_loop()), asyncio.Queue(), asyncio.Event(), asyncio.Condition(), asyncio.Semaphore(), asyncio.timeout(1), asyncio.TaskGroup(), asyncio.Barrier(2),
  zoneinfo.ZoneInfo("UTC"), re.compile("a"), re.match("a", "a"), re.finditer("a", "a"), io.StringIO(), io.BytesIO(), io.TextIOWrapper(io.BytesIO()), string.Template("a"), string.Formatter(),
  contextlib.ExitStack(), contextlib.nullcontext(), contextlib.suppress(ValueError), contextlib.closing(io.StringIO()), warnings.catch_warnings(record=True),
  functools.partial(int), functools.lru_cache(fn), functools.cached_property(fn), functools.singledispatch(fn), functools.partialmethod(fn), functools.singledispatchmethod(fn), functools.cmp_to_key(fn),
  operator.attrgetter("x"), operator.itemgetter(1), operator.methodcaller("x"), random.Random(), random.SystemRandom(), random.seed, decimal.getcontext(), decimal.Decimal(1), fractions.Fraction(1), uuid.uuid4(), hashlib.sha256(), hmac.new(b"a", b"b", "sha256"),
  datetime.datetime.now(), datetime.timezone.utc, pathlib.PurePosixPath("a/b"), pathlib.PureWindowsPath("a"), pathlib.PurePosixPath("a/b").parents, types.SimpleNamespace(), types.MappingProxyType({}), types.GenericAlias(list, int), int | str,
  typing.List[int], typing.Annotated[int, 1], typing.TypeVar("T"), typing.NewType("N", int), typing.ForwardRef("x"), typing.NamedTuple("NT", [("a", int)])(1), typing.Optional[int], typing.Callable[[int], int],
  collections.namedtuple("P", "x y")(1, 2), collections.deque(), collections.Counter(), collections.ChainMap({}), collections.UserDict(), collections.UserString(""), collections.defaultdict(int),
  graphlib.TopologicalSorter(), difflib.SequenceMatcher(None, "a", "b"), json.JSONEncoder(), json.JSONDecoder(), pprint.PrettyPrinter(), reprlib.Repr(), textwrap.TextWrapper(), struct.Struct("i"), zlib.compressobj(), array.array("i"), queue.Queue(), calendar.Calendar(), statistics.NormalDist(),
  weakref.ref(Cls), weakref.WeakValueDictionary(), weakref.WeakSet(), weakref.finalize(Cls(), int), contextvars.ContextVar("v"), contextvars.copy_context(), itertools.count(), ipaddress.ip_network("10.0.0.0/8"),
  IPython.display.HTML("a"), IPython.display.Markdown("a"), IPython.display.JSON({}), IPython.display.Image(b"x", format="png"), IPython.display.ProgressBar(3), IPython.display.DisplayHandle(), abc.ABC, typing.Protocol, enum.auto(), enum.property(fn), memoryview(b"a"), time.gmtime()]
c.close()
seen, stack, held = set(), collections.deque([(r, "root") for r in roots] + [(i, "instance") for i in instances]), []
count = found = 0
while stack and count < 120_000 and found < 100:
    thing, path = stack.popleft()
    if id(thing) in seen or type(thing) in (int, str, bytes, float, bool, type(None), complex): continue
    seen.add(id(thing)); held.append(thing); count += 1
    try:
        if canary(thing): found += 1; print("   at", path)
    except BaseException: pass
    if path.count(".") > 7: continue
    names = []
    leaf = type(thing).__name__ in ("method-wrapper", "builtin_function_or_method", "wrapper_descriptor", "method_descriptor", "classmethod_descriptor", "getset_descriptor", "member_descriptor")
    try: names = [] if leaf else list(dir(thing))
    except BaseException: pass
    try: names += [k for k in thing.__dict__ if type(k) is str]
    except BaseException: pass
    names += ["__mro__", "__bases__", "__base__", "mro", "__self__", "__func__", "__wrapped__", "__closure__", "__defaults__", "__kwdefaults__", "__objclass__", "__dict__", "fget", "cell_contents", "__traceback__", "__context__"]
    for n in names:
        try: value = getattr(thing, n)
        except BaseException: continue
        stack.append((value, path + "." + n))
    try: raw = list(thing.__dict__.items())
    except BaseException: raw = []
    for k, v in raw: stack.append((v, path + ".__dict__." + str(k)[:40]))
    try:
        if isinstance(thing, dict):
            for k, v in list(thing.items())[:5000]: stack.append((v, path + ".[" + str(k)[:40])); stack.append((k, path + ".key"))
        elif isinstance(thing, (list, tuple, set, frozenset, collections.deque)):
            for v in list(thing)[:5000]: stack.append((v, path + ".[]"))
    except BaseException: pass
print("crawled", count)
pool.shutdown()
