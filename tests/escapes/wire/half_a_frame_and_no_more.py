# the first half of a frame, while no cell runs
# ends: ok
# after: protocol
later(put, frame(text("x" * 1000))[:500], seconds=0.3)
