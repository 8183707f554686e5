"""Sub-agents: agents that work for a parent, beside it, and report back.

`manager` starts them, `reporter` reports on them, `meta_tools` are the tools by which a model directs them, and `host`
is the session in which they run and that keeps their records.
"""
