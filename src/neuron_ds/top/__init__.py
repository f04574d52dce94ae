"""Top: the live picture on a terminal, and as plain text. Textual is needed by the former only."""
