# letters for stdout and stderr in turn, so that nothing can be joined
# ends: any
one = frame(text("x")) + frame(text("x", "stderr"))
end = time.monotonic() + 2
while time.monotonic() < end: put(one * 10_000)
