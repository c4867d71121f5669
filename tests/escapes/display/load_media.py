"""Sound, film, posters, tracks."""

html(f"<video src='{URL}' autoplay muted></video><video poster='{URL}'></video><audio src='{URL}' autoplay></audio><video autoplay muted><source src='{URL}'><track default src='{URL}' kind=captions></video><bgsound src='{URL}'>")
