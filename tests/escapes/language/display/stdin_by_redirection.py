# The file behind the standard input, by what redirects another stream.
import contextlib, io
class Redirects(contextlib.redirect_stdout): _stream = "stdin"
redirects = Redirects(io.StringIO())
with redirects: files = list(redirects._old_targets)
canary(type(files[0].buffer.raw))
