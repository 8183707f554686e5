"""The studio: AgenticX as a local server with a page, for one person."""
