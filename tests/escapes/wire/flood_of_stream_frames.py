# text in frames, as much as goes through
# ends: any
flood(text("x" * 60_000))
