# A profiler that runs text, by a class that no facade shows.
s = get_ipython().run_line_magic('prun', '-r pass')
S, seen = type(s), []
init = S.__init__
def spy(self, *args, **kw):
    seen.append(args)
    init(self, *args, **kw)
S.__init__ = spy
get_ipython().run_line_magic('prun', '-q pass')
prof = seen[0][0]
print([e.code for e in prof.getstats()][:2])
prof.runctx("import os; print(os.uname().release)", {}, {})
