"""Models around another model: retries, prices, capabilities, think blocks, XML tools."""
