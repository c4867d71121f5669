"""Images from afar, in all forms."""

markdown(rf"""![a]({URL}) ![b][y] ![c](<{URL}>) [![d]({URL})]({LINK}) ![](//127.0.0.1/x) !\[e]({URL}) ![f
]({URL})

[y]: {URL} 'title'

<img src={URL}> <img srcset='{URL} 1x'>""")
