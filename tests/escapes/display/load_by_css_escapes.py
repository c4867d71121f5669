"""Addresses behind escapes, comments and strings that never end."""

html(rf"""<style>.g-b{{background:\000075\000072\00006c({URL})}} .g-b{{a:'
;background:url({URL})}} .g-b{{a:"\
";background:url({URL})}} /*/*/.g-b{{background:url({URL})}}/**/ .g-b{{background:URL({URL})}} .g-b{{a:(;background:url({URL})}} .g-b{{a:[}};background:url({URL})]}} <!-- .g-b{{background:url({URL})}} --></style><p class=g-b>x</p>""")
