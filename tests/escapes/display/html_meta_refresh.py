"""A page that goes elsewhere by itself."""

html(f"<meta http-equiv=refresh content='0;url={URL}'><meta http-equiv=refresh content='0;url=javascript:{JS}'><meta http-equiv=set-cookie content=a=b><meta name=referrer content=unsafe-url>")
