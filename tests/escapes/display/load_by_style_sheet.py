"""Addresses in a style sheet."""

html(f"<style>.g-a{{background:url('{URL}')}} .g-a::before{{content:url({URL})}} @font-face{{font-family:g;src:url({URL})}} .g-a{{font-family:g}} @media all{{.g-a{{background:url({URL})}}}} @supports (a:b) or (color:red){{.g-a{{background:url({URL})}}}} .g-a{{--u:url({URL})}} @namespace url({URL}); @layer x{{.g-a{{background:url({URL})}}}} @property --p{{syntax:'<url>';inherits:false;initial-value:url({URL})}} .g-a{{&:hover{{background:url({URL})}}}} @container (width>0){{.g-a{{background:url({URL})}}}}</style><p class=g-a>x</p>")
