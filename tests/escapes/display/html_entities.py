"""Entities without an end, too long, twice over."""

html(f"&lt;img src=x onerror={JS}&gt;<a href='&#0000000000000106avascript:{JS}'>x</a><a href='javascript&#58{JS}'>x</a><p title='&quot;><img src=x onerror={JS}>'>&amp;lt;script&amp;gt;</p><img src=&quot;x&quot;onerror={JS}>")
