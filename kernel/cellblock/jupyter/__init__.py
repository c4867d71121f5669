"""Front: the Jupyter kernel. Sockets, messages and sequence; decisions are the session's."""
