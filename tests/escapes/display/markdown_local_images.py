"""Images of the server and of the notebook, asked with its cookies."""

markdown("![a](/api/terminals) ![b](files/x.png) ![c](attachment:x.png) ![d](../../logout) <img src='/logout'>")
