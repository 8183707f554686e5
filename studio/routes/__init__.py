"""The routes of the server: `table` lists them, with one module per resource beside it."""
