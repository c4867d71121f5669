"""A drawing larger than its box."""

html("<svg width=10 height=10 style='overflow:visible;position:fixed;top:0;left:0' overflow=visible><rect x=-5000 y=-5000 width=10000 height=10000 fill='#fff'/></svg><svg viewBox='0 0 1 1' width=99999 height=99999><foreignObject width=100% height=100%><div style='position:fixed;inset:0'>x</div></foreignObject></svg>")
