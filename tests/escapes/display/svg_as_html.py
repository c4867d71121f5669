"""A drawing that is HTML, for front ends that put it into the page."""

svg(f"<html><body><img src=x onerror={JS}></body></html>")
svg(f"<svg/onload={JS}>")
svg(f"<svg><![CDATA[</svg><img src=x onerror={JS}>]]></svg>")
