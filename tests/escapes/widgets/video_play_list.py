"""A play list in place of a film: a browser fetches what it lists."""

play_list = f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{URL}\n#EXT-X-ENDLIST\n".encode()
for said in ("mp4", "mp2t", "x-mpegurl"):
    widget(CONTROLS, "VideoModel", "VideoView", format=said, autoplay=True, loop=False, controls=True, width="", height="",
           paths=[["value"]], buffers=[play_list])
widget(CONTROLS, "VideoModel", "VideoView", format="mp4\"; type=\"application/vnd.apple.mpegurl", autoplay=True, loop=False,
       controls=True, width="", height="", paths=[["value"]], buffers=[play_list])
