"""Names that the gateway may use inside for itself."""

html(f"<cellblock-svg class='0000000000000000-0'><img src=x onerror={JS}></cellblock-svg><div id='cellblock-000000000000'><style>*{{position:fixed}}</style></div>")
