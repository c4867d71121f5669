"""Script elements that a careless parser misses."""

html(f"""<ScRiPt
>{JS}</sCrIpT\x09><script/x>{JS}</script/y><<script>{JS}//<</script>""")
