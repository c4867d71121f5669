"""A PDF with an action on opening: the viewer is a plug-in."""

pdf = f"%PDF-1.4\n1 0 obj<</Type/Catalog/OpenAction<</S/URI/URI({URL})>>>>endobj\ntrailer<</Root 1 0 R>>"
show("application/pdf", base64.b64encode(pdf.encode()).decode())
