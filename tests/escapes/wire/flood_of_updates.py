# updates of displays that were never made
# ends: any
flood(show("x", display_id="none", update=True))
