"""Ends of lines in an error that end the code block of an exported page."""

raise ValueError(f"e\r\r<script>{JS}</script>\r\r\u2028.. include:: /etc/passwd")
