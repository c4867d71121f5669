"""The listener by its other names."""

html(f"<img src='http://[::1]:{PORT}/{NAME}'><img src='http://localhost:{PORT}/{NAME}'><img src='http://0x7f070707:{PORT}/{NAME}'><img src='http://127.7.1799:{PORT}/{NAME}'><p style='background:url(http://[::1]:{PORT}/{NAME})'>x</p>")
