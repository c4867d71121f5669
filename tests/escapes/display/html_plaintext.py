"""Elements whose content is no markup until it is."""

html(f"<noembed><img title='</noembed><img src=x onerror={JS}>'></noembed><xmp><p title='</xmp><img src=x onerror={JS}>'></xmp><listing>&lt;img src=x onerror={JS}&gt;</listing><textarea><img title='</textarea><img src=x onerror={JS}>'></textarea><title><a title='</title><img src=x onerror={JS}>'></title><plaintext><img src=x onerror={JS}>")
