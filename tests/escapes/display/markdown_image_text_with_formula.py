"""The same in an image's text."""

markdown(f'![$" onload="{JS}" x="$](data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==) ![x](data:image/png;base64,iVBORw0KGgo= "$" onerror="{JS}" x="$")')
