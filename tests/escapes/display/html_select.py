"""Parsers throw out what stands in a select, or don't."""

html(f"<select><style></select><img src=x onerror={JS}></style><select><option><img src=x onerror={JS}></option></select><select><template><img src=x onerror={JS}></template></select>")
