"""What stands wrongly in a table moves before it."""

html(f"<table><img src=x onerror={JS}><tr><script>{JS}</script><caption><table><td><img src=x onerror={JS}></table><svg><td><img src=x onerror={JS}>")
