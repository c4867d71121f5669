"""Sound and film by type."""

for mime in ("audio/mpeg", "audio/x-wav", "video/mp4", "video/webm", "application/x-mpegURL"):
    show(mime, base64.b64encode(f"#EXTM3U\n{URL}".encode()).decode())
