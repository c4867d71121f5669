"""What is text with scripts on and markup with scripts off."""

html(f"<noscript><p title='</noscript><img src=x onerror={JS}>'></noscript><noframes><p title='</noframes><img src=x onerror={JS}>'>")
